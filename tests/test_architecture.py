"""The architecture of the code as tables: the imports each layer may use, the names allowed, and the sizes allowed.

The tests read the source with `ast` and import none of it, so they also check a module that cannot be loaded. A change
of the architecture begins in the tables below, or it is a mistake.
"""

import ast
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from purity_checker import find_changes, is_question
from source_trees import PACKAGE, parse_package

SOURCE = Path(__file__).parent.parent / "daemon"

# Every layer may import these: the package's own __init__ (the version), the errors, and text, which knows nothing of
# sessions.
LEAVES = {"", "errors", "text"}
# Layer -> the layers it may import, besides itself and the leaves, from the inside out. A layer is a sub-package or a
# module of the package. A layer that is not in the table is refused.
LAYERS: dict[str, set[str]] = {
    # Pure values and rules: no I/O, no clock.
    "core": set(),
    # Services of the operating system. They know nothing of sessions.
    "system": set(),
    # The client of the control socket, for the command line, agents and the MCP server.
    "client": set(),
    # YAML text to values.
    "specs": {"core"},
    "settings": {"core", "system", "specs"},
    "secrets": {"core", "system"},
    # The edges know the core and themselves, never each other.
    "eventlog": {"core", "system"},
    "sources": {"core", "system"},
    "runners": {"core", "system", "secrets"},
    # The process of an agent. It is not part of the daemon, which never imports it.
    "agents": {"core", "secrets", "system", "runners", "client"},
    # The table of verbs: plain data, for the command line and the API.
    "verbs": set(),
    # Signatures of deliveries, and their payloads.
    "webhooks": {"core"},
    # State and events as data for people.
    "views": {"core", "system"},
    # The files of runs: kept by content, compared, restored, replayed.
    "run_files": {"core", "system", "runners"},
    # The daemon's own condition: findings, numbers, spans.
    "monitoring": {"core", "system", "eventlog", "views"},
    # Reading the log back.
    "history": {"core", "system", "eventlog", "specs", "views"},
    # Notifications: from records to messages that arrive.
    "notifications": {"core", "system", "eventlog", "views"},
    # Sessions as files, over the log's contract.
    "bundles": {"core", "system", "eventlog", "run_files"},
    # The context of a model, assembled from the log.
    "model_context": {"core", "system", "eventlog", "run_files", "views"},
    # Folders of their own for forks and runs.
    "workspaces": {"core", "system", "run_files", "sources", "runners"},
    # Which specs are in force, and which of them a person trusted.
    "trust": {"core", "system", "specs", "settings"},
    # The control socket: callers and routes.
    "api": {
        "core", "system", "specs", "secrets", "eventlog", "views", "run_files", "history", "bundles", "model_context", "workspaces",
        "trust", "notifications", "verbs", "webhooks", "monitoring", "mcp_server", "client",
    },
    # The running daemon. Its wiring is the only place that constructs edges.
    "service": {
        "core", "system", "specs", "settings", "secrets", "eventlog", "sources", "runners", "views", "run_files", "history", "bundles",
        "workspaces", "trust", "notifications", "api", "monitoring",
    },
    # The verbs as tools of MCP, over the routes of the daemon.
    "mcp_server": {"verbs", "client"},
    # Arguments in, text out.
    "cli": {
        "core", "system", "specs", "settings", "secrets", "eventlog", "views", "verbs", "service", "monitoring", "mcp_server", "client",
    },
    "__main__": {"cli"},
}  # fmt: skip
EDGES = ("eventlog", "sources", "runners")
# The part of an edge that others may import: the port, as values and protocols, and the log's pure codec and hashes.
SHOWN_BY_EDGES = {("contract",), ("codec",), ("chain",)}
# The agent's process also confines itself and the programs it starts, with the means of the runners.
CONSTRUCTS_EDGES = {"service", "agents"}

# Package -> its modules and sub-packages in steps, from the inside out. A part may import itself and the steps before
# its own, and nothing else of the package. A part that is in no step is refused.
ORDER_INSIDE: dict[str, tuple[set[str], ...]] = {
    # A process knows nothing of isolation, and both know nothing of the run.
    "runners": ({"contract"}, {"process"}, {"isolation"}, {"outputs"}, {"preparation"}, {"run"}),
    "core": (
        {"spec"},
        {"agents"},
        {"record"},
        {"looking"},
        {"deciding"},
        {"calls"},
        {"observation_handlers"},
        {"decide"},
    ),
    "sources": (
        {"contract"},
        {"processes"},
        {"hints"},
        # A look at files waits while git rewrites them, so files know git.
        {"git", "checks", "clock", "disk_space"},
        {"files"},
        {"declarations"},
        {"all_sources"},
    ),
    # The gate judges a request before a route reads it. Operations know the service and no HTTP; routes join both.
    "api": (
        {"problems", "live_answers", "presence", "day_costs", "event_stream"},
        {"contract", "bodies"},
        {"gate"},
        {"requests", "tcp_port"},
        {"live_feed"},
        {"operations", "openapi"},
        {"routes"},
        {"app"},
        {"server"},
    ),
    # The reactor knows no edge, and reports feed it. The daemon is above both, and only the start knows the wiring.
    "service": (
        {
            "reactor",
            "run_starter",
            "lookups",
            "program_reach",
            "offline_store",
        },
        {"log_printer", "otel_traces"},
        {"reports"},
        {"shutdown"},
        {"api_service"},
        {"daemon"},
        {"wiring"},
        {"startup"},
    ),
    # Both transports use the wire and the refusals, and do not know each other.
    "client": ({"wire", "refusals"}, {"sync_transport", "async_client"}),
    "agents": (
        {"contract"},
        # The words of a model on their way to followers, the models, and the tools.
        {"live_text", "models", "tools"},
        {"loop"},
        {"summary"},
        {"compaction", "subagents"},
        {"run_setup"},
        # An external agent that replaces the loop.
        {"acp"},
        {"process"},
        {"__main__"},
    ),
}

# The core reads no clock, uses no randomness and touches no file. These arrive in observations. It may import only
# these modules.
ALLOWED_IN_CORE = {
    "__future__", "bisect", "collections", "copy", "dataclasses", "datetime", "difflib", "functools", "hashlib", "heapq", "ipaddress",
    "itertools", "json", "math", "operator", "posixpath", "re", "typing", "urllib.parse",
    # `sys` interns names, `cronsim` has the arithmetic of cron expressions, and `msgspec` makes and encodes values
    # fast.
    "sys", "cronsim", "msgspec",
}  # fmt: skip
# The only module of the core that reads the machine's zone database.
ASKS_FOR_ZONES = ("wakeful", "core", "spec", "zones")
# These methods of `datetime` and `date` read the clock.
READS_THE_CLOCK = {"now", "utcnow", "today"}

# The libraries of agents, which only the extra `agents` installs.
ONLY_IN_AGENTS = {"httpx2", "mcp"}
# Libraries whose requests to models the tests compare with ours. Installed code does not import them.
ONLY_IN_TESTS = {"pydantic_ai", "anthropic", "openai", "google"}
# The server of MCP uses it, too. It is imported late.
ALSO_SPEAKS = {"mcp_server": {"mcp"}}

# Other tools' words for our concepts. We have one word per concept.
UNUSED_WORDS = {"job", "task", "worker", "manager", "thread", "chat", "util", "helper"}
UNUSED_AS_CLASS = "context"
LONGEST_FILE_LINES = 700
LONGEST_FUNCTION_LINES = 100


@dataclass(frozen=True)
class Import:
    """One import of our own package: its place, its target, and whether it is inside a function."""

    where: str
    layer: str
    target: tuple[str, ...]
    is_hidden: bool
    is_for_types: bool


def place(path: Path, node: ast.AST) -> str:
    return f"{path.relative_to(SOURCE.parent)}:{getattr(node, 'lineno', 1)}"


def module_of(path: Path) -> tuple[str, ...]:
    """Return a file's module name in parts, as Python names it: wakeful/core/__init__.py is ("wakeful", "core")."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return parts[:-1] if parts[-1] == "__init__" else parts


def layer_of(module: tuple[str, ...]) -> str:
    """Return the layer of a module. The package's own __init__ is the empty layer."""
    return module[1] if len(module) > 1 else ""


@functools.cache
def is_module(parts: tuple[str, ...]) -> bool:
    return SOURCE.joinpath(*parts).is_dir() or SOURCE.joinpath(*parts).with_suffix(".py").is_file()


def find_late_import(node: ast.AST) -> str | None:
    """Return the module named by `importlib.import_module("wakeful...")`.
    It is imported late on purpose, and counts as an import."""
    match node:
        case ast.Call(func=ast.Attribute(attr="import_module"), args=[ast.Constant(value=str(name)), *_]):
            return name
        case _:
            return None


def named_modules(node: ast.AST, path: Path) -> Iterator[tuple[str, ...]]:
    """Yield every module that an import statement names.
    `from wakeful.core.deciding import plan` names wakeful.core.deciding.plan."""
    if (late := find_late_import(node)) is not None:
        yield tuple(late.split("."))
        return
    if isinstance(node, ast.Import):
        yield from (tuple(alias.name.split(".")) for alias in node.names)
        return
    base = tuple(node.module.split(".")) if node.module else ()
    if node.level:
        package = module_of(path) if path.name == "__init__.py" else module_of(path)[:-1]
        base = package[: len(package) - node.level + 1] + base
    for alias in node.names:
        longer = (*base, alias.name)
        yield longer if base[:1] == ("wakeful",) and is_module(longer) else base


def walk_imports(
    node: ast.AST, is_hidden: bool = False, is_for_types: bool = False
) -> Iterator[tuple[ast.AST, bool, bool]]:
    for child in ast.iter_child_nodes(node):
        if find_late_import(child) is not None:
            yield child, False, is_for_types
        match child:
            case ast.Import() | ast.ImportFrom():
                yield child, is_hidden, is_for_types
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                yield from walk_imports(child, True, is_for_types)
            case ast.If(test=ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING")):
                yield from walk_imports(child, is_hidden, True)
            case _:
                yield from walk_imports(child, is_hidden, is_for_types)


@functools.cache
def all_imports() -> tuple[Import, ...]:
    return tuple(
        Import(place(path, node), layer_of(module_of(path)), target, is_hidden, is_for_types)
        for path, tree in parse_package().items()
        for node, is_hidden, is_for_types in walk_imports(tree)
        for target in named_modules(node, path)
    )


def our_imports() -> list[Import]:
    return [found for found in all_imports() if found.target[0] == "wakeful"]


def words_of(name: str) -> set[str]:
    """Split a name into its words, also in the singular: `RunningTasks` and `running_tasks` both contain `task`."""
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)
    return {word.lower().removesuffix("s") for word in words} | {word.lower() for word in words}


@functools.cache
def definitions() -> tuple[tuple[Path, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef], ...]:
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return tuple(
        (path, node) for path, tree in parse_package().items() for node in ast.walk(tree) if isinstance(node, kinds)
    )


def test_the_source_is_seen() -> None:
    """The rules below are checked on the real package, not on an empty folder."""
    assert PACKAGE / "__init__.py" in parse_package()
    assert PACKAGE / "core" / "__init__.py" in parse_package()
    assert not (SOURCE / "__init__.py").exists(), (
        "daemon/ is a source root: the import name `daemon` is another project's"
    )


def test_every_layer_is_known() -> None:
    """A new module or sub-package must first be in the table above."""
    strangers = {layer_of(module_of(path)) for path in parse_package()} - LAYERS.keys() - LEAVES
    assert strangers == set()


def test_imports_point_inward() -> None:
    """A layer imports only the layers that the table allows."""
    outward = [
        f"{found.where}: {found.layer} imports {'.'.join(found.target)}"
        for found in our_imports()
        if layer_of(found.target) not in LEAVES | {found.layer} | LAYERS.get(found.layer, set())
    ]
    assert outward == []


@pytest.mark.parametrize("package", ORDER_INSIDE)
def test_imports_inside_a_package_keep_its_order(package: str) -> None:
    """Imports inside these packages also point in one direction."""
    steps = {part: number for number, parts in enumerate(ORDER_INSIDE[package]) for part in parts}
    found = [
        (place(path, node), module_of(path)[2:3], target[2:3])
        for path, tree in parse_package().items()
        if layer_of(module_of(path)) == package
        for node, _, _ in walk_imports(tree)
        for target in named_modules(node, path)
        if target[:2] == ("wakeful", package)
    ]
    parts = {
        module_of(path)[2]
        for path in parse_package()
        if module_of(path)[1:2] == (package,) and len(module_of(path)) > 2
    }
    assert parts == steps.keys(), "every part of the package has its step"
    outward = [
        f"{where}: {own[0]} imports {target[0]}"
        for where, own, target in found
        if own and target and own != target and steps[target[0]] >= steps[own[0]]
    ]
    assert outward == []


def test_the_leaves_lean_on_nothing() -> None:
    """Modules that all layers import must import nothing of ours outside the leaves."""
    leaning = [found for found in our_imports() if found.layer in LEAVES and layer_of(found.target) not in LEAVES]
    assert [found.where for found in leaning] == []


def test_only_wiring_constructs_edges() -> None:
    """Other layers may import only an edge's contract, so that each edge can be exchanged."""
    reaching = [
        f"{found.where}: {found.layer} reaches into {'.'.join(found.target)}"
        for found in our_imports()
        if layer_of(found.target) in EDGES
        and found.layer not in CONSTRUCTS_EDGES | {layer_of(found.target)}
        and found.target[2:] not in SHOWN_BY_EDGES
    ]
    assert reaching == []


def test_no_import_of_ours_hides_in_a_function() -> None:
    """Imports of our own modules are at the top of a module, where the layers are visible."""
    assert [found.where for found in our_imports() if found.is_hidden] == []


def test_the_core_is_pure() -> None:
    """The core imports only the modules on the list: no clock, no randomness, no I/O and no library of the edges."""
    core = [
        (place(path, node), module_of(path), target)
        for path, tree in parse_package().items()
        if layer_of(module_of(path)) == "core"
        for node, _, _ in walk_imports(tree)
        for target in named_modules(node, path)
        if target[0] != "wakeful"
    ]
    assert core, "the imports of the core are seen"
    impure = [
        f"{where}: {'.'.join(target)}"
        for where, module, target in core
        if not {target[0], ".".join(target[:2])} & ALLOWED_IN_CORE
        and not (target == ("zoneinfo",) and module == ASKS_FOR_ZONES)
    ]
    assert impure == []


def test_the_core_reads_no_clock() -> None:
    """`datetime` is on the list of allowed modules, but its methods that read the clock are not."""
    found = [
        place(path, node)
        for path, tree in parse_package().items()
        if layer_of(module_of(path)) == "core"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr in READS_THE_CLOCK
        and isinstance(node.value, ast.Name)
        and node.value.id in ("datetime", "date")
    ]
    assert found == []


def test_a_question_changes_nothing() -> None:
    """A view may call any function of the core whose name is a question, because the function does not change its
    arguments."""
    changing = [
        f"{place(path, node)}: {function.name}"
        for path, function in definitions()
        if layer_of(module_of(path)) == "core" and not isinstance(function, ast.ClassDef)
        if is_question(function, module_of(path))
        for node in find_changes(function)
    ]
    assert changing == []


def test_nobody_looks_at_descriptors_by_select() -> None:
    """`select` refuses descriptors above 1023, which a daemon with many runs has. `poll` and `selectors` accept all."""
    found = [
        f"{path.relative_to(SOURCE)}:{node.lineno}"
        for path, tree in parse_package().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr == "select"
        and isinstance(node.value, ast.Name)
        and node.value.id == "select"
    ]
    assert found == []


def test_only_the_thinking_process_knows_the_libraries_of_models() -> None:
    """Without these libraries the daemon and the command line start fast and stay small.
    Only an agent's process needs them."""
    reaching = [
        f"{found.where}: {found.target[0]}"
        for found in all_imports()
        if (found.target[0] in ONLY_IN_AGENTS - ALSO_SPEAKS.get(found.layer, set()) and found.layer != "agents")
        or found.target[0] in ONLY_IN_TESTS
    ]
    assert reaching == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    """The graph of modules has an order, so that each module can be loaded after its imports."""
    graph: dict[tuple[str, ...], set[tuple[str, ...]]] = {module_of(path): set() for path in parse_package()}
    for path, tree in parse_package().items():
        for node, _, is_for_types in walk_imports(tree):
            # A late import runs when all modules are loaded.
            if not is_for_types and find_late_import(node) is None:
                graph[module_of(path)].update(name for name in named_modules(node, path) if name in graph)
    for module, targets in graph.items():
        targets.discard(module)
    while leaves := {module for module, targets in graph.items() if not targets}:
        graph = {module: targets - leaves for module, targets in graph.items() if module not in leaves}
    assert sorted(".".join(module) for module in graph) == []


def test_one_word_per_concept() -> None:
    """No module, class or function is named with another tool's word for one of our concepts."""
    wrong = [str(path.relative_to(SOURCE)) for path in parse_package() if UNUSED_WORDS & words_of(path.stem)]
    wrong += [f"{place(path, node)}: {node.name}" for path, node in definitions() if UNUSED_WORDS & words_of(node.name)]
    wrong += [
        f"{place(path, node)}: {node.name}"
        for path, node in definitions()
        if isinstance(node, ast.ClassDef) and UNUSED_AS_CLASS in words_of(node.name)
    ]
    assert wrong == []


def test_no_file_grows_too_long() -> None:
    """A file that is too long to read in one go should be two files."""
    lengths = {str(path.relative_to(SOURCE)): len(path.read_text().splitlines()) for path in parse_package()}
    assert {name: lines for name, lines in lengths.items() if lines > LONGEST_FILE_LINES} == {}


def test_no_function_grows_too_long() -> None:
    """A function that no longer fits a screen should be two functions."""
    too_long = [
        f"{place(path, node)}: {node.name} has {node.end_lineno - node.lineno + 1} lines"
        for path, node in definitions()
        if not isinstance(node, ast.ClassDef) and node.end_lineno - node.lineno + 1 > LONGEST_FUNCTION_LINES
    ]
    assert too_long == []


def test_every_module_opens_with_its_purpose() -> None:
    """Each module begins with a docstring."""
    silent = [
        str(path.relative_to(SOURCE))
        for path, tree in parse_package().items()
        if tree.body and not ast.get_docstring(tree)
    ]
    assert silent == []


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("RunningTasks", {"running", "tasks", "task"}),
        ("open_HTTPSocket", {"open", "http", "socket"}),
        ("multitasking", {"multitasking"}),
    ],
)
def test_names_are_split_into_words(name: str, words: set[str]) -> None:
    """The test finds a forbidden word in both styles of names, and not inside a longer word."""
    assert words <= words_of(name)
    assert ("task" in words_of(name)) == (name == "RunningTasks")
