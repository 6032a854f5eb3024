"""Reads a folder of specs into sessions, problems and warnings. Only files that changed are read again.

Called by `check`, by settings' ProjectReader for the daemon, and by tests. One bad file never affects the others. The
folder as a whole is not judged here: the core (graph.py) finds cycles and double writers, and reports them as the same
Problem. A file is skipped if its stat key is unchanged and was old enough at the last reading to be reliable. A
template is read once, and gives one reading for each file that its glob matches (templates.py).
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path as FilePath
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace
from pydantic import ValidationError

from wakeful.core.deciding.acting_agent import find_ambiguous_binding
from wakeful.core.spec.agent import AgentSpec
from wakeful.core.spec.bindings import ServiceBinding, SessionBinding
from wakeful.core.spec.session import TEMPLATE_MARK, PromptRun, SessionSpec, find_template
from wakeful.specs.agents import build_agent
from wakeful.specs.file_ownership import find_others, judge_writers
from wakeful.specs.model_errors import FileKind, Finding, find_nearest, find_value, translate
from wakeful.specs.models import AgentKeys, SessionKeys
from wakeful.specs.problem import Problem, RefusedSpec, refuse, show_name
from wakeful.specs.prompt_file import RACY_NANOSECONDS, PromptFile, StatKey
from wakeful.specs.spec_builder import RUN_KINDS, Built, Surroundings, build_spec
from wakeful.specs.templates import (
    FOR_EACH,
    Glob,
    Match,
    Template,
    fill,
    find_brace_problems,
    find_files,
    has_placeholder,
    judge_files,
)
from wakeful.specs.value_parsers import find_name_problem, parse_pattern
from wakeful.specs.yaml_text import MAX_BYTES, Marks, Path, Value, read_mapping, read_marks, shorten
from wakeful.text.display import ReportProgress, ignore_progress

AGENTS = "agents"
SUFFIX = ".yaml"
DEEPEST_FOLDER = 16
# The number of files between two reports of progress.
FILES_PER_REPORT = 250

UNREAD: StatKey = (0, 0, 0, 0)
# The separator between a template's file and the path of one of its sessions. No file name contains it.
INSTANCE = "\0"
# Makes a problem with the value at this path, in these words.
MakeProblem: TypeAlias = Callable[[Path, str], Problem]


class Defaults(Struct, frozen=True):
    """`defaults` of wakeful.yaml, merged under every spec.

    A mistake in them is reported at its place in wakeful.yaml.
    """

    value: dict[str, Any] = {}
    file: str = "wakeful.yaml"
    marks: Marks | None = None


NO_DEFAULTS = Defaults()


class FileReading(Struct, frozen=True, kw_only=True):
    """The reading of one file, or of a template for one file of its glob.

    `spec` is set exactly if it is a session without problems, `agent` if it is an agent without problems. `prompt` is
    set if an agent's prompt is in a file of its own. The files and folders of its skills are listed, too.
    """

    name: str
    file: str
    key: StatKey
    is_racy: bool
    digest: str = ""
    # Why others can change the file, in words. Checked when the file last changed.
    others: str | None = None
    spec: SessionSpec | None = None
    template: Template | None = None
    agent: AgentSpec | None = None
    prompt: PromptFile | None = None
    skill_files: tuple[PromptFile, ...] = ()
    skill_folders: tuple[PromptFile, ...] = ()
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()

    @property
    def agent_files(self) -> tuple[PromptFile, ...]:
        """The files of an agent besides its spec: the prompt and the skills."""
        return self.skill_files if self.prompt is None else (self.prompt, *self.skill_files)


class Expansion(Struct, frozen=True):
    """The readings that a template of this digest produced for the files of its glob.

    `readings` has the same keys as the folder's `files`.
    """

    digest: str
    glob: Glob
    readings: dict[str, FileReading]


class FolderReading(Struct, frozen=True, kw_only=True):
    """The result of reading the folder once. The next reading compares with `files`."""

    sessions: dict[str, SessionSpec]
    text_digests: dict[str, str]
    # By file as a person names it, such as `sessions.d/nightly.yaml`.
    problems: dict[str, list[Problem]]
    warnings: list[Problem]
    # The same problems by session name, or by `agents/<name>`, for callers that do not know files.
    refused: dict[str, str]
    # The agents without problems.
    agents: dict[str, AgentSpec]
    folders: tuple[str, ...]
    # Symbolic links in folders of specs, wherever they point.
    links: tuple[str, ...]
    # By the template's file.
    expansions: dict[str, Expansion]
    files: dict[str, FileReading]
    basis: tuple[Defaults, Surroundings]

    @property
    def agent_files(self) -> tuple[str, ...]:
        """The files of prompts and skills that agents name, whether or not they can be read."""
        return tuple(file.path for one in self.files.values() for file in one.agent_files)

    @property
    def skill_folders(self) -> tuple[str, ...]:
        """Folders in which a new or a removed file requires another reading."""
        return tuple(folder.path for one in self.files.values() for folder in one.skill_folders)


def read_folder(
    specs_dir: FilePath,
    surroundings: Surroundings | None = None,
    defaults: Defaults = NO_DEFAULTS,
    previous: FolderReading | None = None,
    kept: Mapping[str, FileReading] | None = None,
    report_progress: ReportProgress = ignore_progress,
) -> FolderReading:
    """Read every spec under `specs_dir`.

    With `previous`, or with the readings that an earlier daemon saved (`kept`), read only the specs that changed since.
    """
    top = os.path.abspath(specs_dir)
    around = surroundings or Surroundings(os.path.dirname(top))
    known = previous.files if previous is not None and previous.basis == (defaults, around) else kept or {}
    shown = os.path.basename(top)
    folders: list[str] = []
    links: list[str] = []
    unlisted: list[tuple[str, Problem]] = []
    files: dict[str, FileReading] = {}
    warnings: list[Problem] = []
    now = time.time_ns()
    found = list(_walk(top, folders, links, unlisted))
    for done, (path, relative) in enumerate(found):
        if done and done % FILES_PER_REPORT == 0:
            report_progress(done, len(found))
        if not relative.endswith(SUFFIX):
            words = f"ignored, because its name does not end in {SUFFIX}; rename it"
            warnings.append(Problem(show_name(f"{shown}/{relative}"), 1, 1, words))
            continue
        reading = known.get(relative) or _name_file(relative, shown)
        if (read := _read_file(path, reading, defaults, around, now)) is not None:
            files[relative] = read
    for prefix, problem in unlisted:
        # A folder that cannot be listed is not taken as deleted: keep the readings of its files.
        files |= {
            r: kept
            for r, kept in (previous.files if previous else {}).items()
            if r.startswith(prefix) and INSTANCE not in r
        }
        name = prefix.rstrip("/") or shown
        files[prefix or "/"] = FileReading(name=name, file=problem.file, key=UNREAD, is_racy=True, problems=(problem,))
    templates = {relative: reading for relative, reading in files.items() if reading.template is not None}
    before = previous.expansions if previous is not None and known is previous.files else {}
    expansions = {
        relative: _expand(relative, reading, known, before.get(relative), (defaults, around))
        for relative, reading in templates.items()
    }
    for expansion in expansions.values():
        files |= expansion.readings
        folders += expansion.glob.folders
    return _assemble(files, warnings, tuple(dict.fromkeys(folders)), tuple(links), expansions, (defaults, around), top)


def read_text(
    data: bytes, name: str, file: str, surroundings: Surroundings, defaults: Defaults = NO_DEFAULTS
) -> tuple[SessionSpec, tuple[Problem, ...]]:
    """Read one session from its text, with its warnings. Raises RefusedSpec if it has problems."""
    built = _build(read_mapping(data, file), name, surroundings, defaults)
    if built.spec is None:
        raise RefusedSpec(_place(built.findings, data, file, defaults))
    return built.spec, _place(built.warnings, data, file, defaults) if built.warnings else ()


def read_template(
    data: bytes, name: str, file: str, surroundings: Surroundings, defaults: Defaults = NO_DEFAULTS
) -> tuple[Template, tuple[Problem, ...]]:
    """Read a template from its text, checked with an example file, with its warnings.

    Raises RefusedSpec if it has problems.
    """
    value = read_mapping(data, file)
    if FOR_EACH not in value:
        raise refuse(
            file,
            1,
            1,
            f"a name that ends in {TEMPLATE_MARK} is a template; add `{FOR_EACH}: tickets/*.md`, or rename the file",
        )
    if findings := find_brace_problems(value):
        raise RefusedSpec(_place(findings, data, file, defaults))
    built = _build(fill(value, "example.md", "example"), f"{name}example", surroundings, defaults, is_template=True)
    # A value with a placeholder is checked later, when the glob finds a file to fill it.
    wrong = [finding for finding in built.findings if not has_placeholder(find_value(value, finding[0]))]
    if wrong or not isinstance(value[FOR_EACH], str):
        raise RefusedSpec(_place(wrong, data, file, defaults))
    marks = read_marks(data, file)
    root = os.path.normpath(os.path.join(surroundings.base, _find_root(value, defaults)))
    own = {key: inner for key, inner in value.items() if key != FOR_EACH}
    template = Template(pattern=parse_pattern(value[FOR_EACH]), root=root, value=own, place=marks.of_value((FOR_EACH,)))
    return template, _place(built.warnings, data, file, defaults) if built.warnings else ()


def _find_root(value: dict[str, Any], defaults: Defaults) -> str:
    return os.path.expanduser(value.get("root") or defaults.value.get("root") or "")


def _build(
    value: dict[str, Any], name: str, around: Surroundings, defaults: Defaults, *, is_template: bool = False
) -> Built:
    """Build a spec from keys. The result has the findings."""
    merged = merge_defaults(defaults.value, value) if defaults.value else value
    try:
        keys = SessionKeys.model_validate(merged)
    except ValidationError as error:
        return Built(findings=translate(error, merged, "session"))
    if keys.for_each is not None and not is_template:
        words = (
            f"{FOR_EACH} makes a template, and a template's name ends in {TEMPLATE_MARK}; rename the file to "
            f"{name}{TEMPLATE_MARK}{SUFFIX}"
        )
        return Built(findings=[((FOR_EACH,), True, words)])
    return build_spec(name, keys, around)


def read_agent(data: bytes, name: str, blank: FileReading, surroundings: Surroundings) -> FileReading:
    """Read an agent from its text.

    The files of its prompt and skills are listed even if the agent has problems, because a person may repair one of
    them.
    """
    keys: AgentKeys = validate(AgentKeys, read_mapping(data, blank.file), data, blank.file, "agent")
    built = build_agent(name, keys, surroundings)
    problems, warnings = (
        _place(found, data, blank.file, NO_DEFAULTS) if found else () for found in (built.findings, built.warnings)
    )
    made = replace(
        blank,
        agent=built.spec,
        prompt=built.prompt,
        skill_files=built.skill_files,
        skill_folders=built.skill_folders,
        problems=problems,
        warnings=warnings,
    )
    # Check the files of the prompt and the skills, too: their authors decide what the agent is told.
    others = (find_others(one.path) for one in (*made.agent_files, *made.skill_folders))
    return replace(made, others=blank.others or next((words for words in others if words is not None), None))


def validate(model: Any, value: dict[str, Any], data: bytes, file: str, kind: FileKind) -> Any:
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise RefusedSpec(_place(translate(error, value, kind), data, file, NO_DEFAULTS)) from None


def merge_defaults(under: dict[str, Any], over: dict[str, Value]) -> dict[str, Any]:
    """Merge defaults under a spec.

    The spec's own keys win. Bindings merge by name, `run` by key, everything else as a whole.
    """
    merged: dict[str, Any] = {**under, **over}
    for key in ("bindings", "run"):
        low, high = under.get(key), over.get(key)
        if key == "run" and high is None:
            # A session without a run must not get a part of one, such as a default timeout.
            merged.pop("run", None)
        elif isinstance(low, dict) and isinstance(high, dict):
            is_said = key == "run" and any(kind in high for kind in RUN_KINDS)
            merged[key] = {**{k: v for k, v in low.items() if not (is_said and k in RUN_KINDS)}, **high}
    return merged


# -- one file -------------------------------------------------------------------------------------


def _name_file(relative: str, shown: str) -> FileReading:
    """Make an empty reading for a file that was not read yet."""
    name = show_name(relative.removesuffix(SUFFIX))
    return FileReading(name=name, file=show_name(f"{shown}/{relative}"), key=UNREAD, is_racy=True)


def _read_file(path: str, known: FileReading, defaults: Defaults, around: Surroundings, now: int) -> FileReading | None:
    """Read the file. Returns `known` itself if the file did not change, and None if it is gone."""
    try:
        found = os.stat(path)
        key = (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino)
        has_stale = any(one.is_stale for one in (*known.agent_files, *known.skill_folders))
        if known.key == key and not known.is_racy and not has_stale:
            return known
        blank = FileReading(name=known.name, file=known.file, key=key, is_racy=True)
        data, found = _read_bytes(path, found, known.file)
        # The stat key of the file that was read, which may have replaced the file of the stat above.
        key = (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino)
        is_racy = now - max(found.st_mtime_ns, found.st_ctime_ns) < RACY_NANOSECONDS
        others = find_others(path) if os.path.islink(path) else judge_writers(path, found)
        blank = replace(blank, key=key, is_racy=is_racy, others=others)
    except FileNotFoundError:
        # The file is gone since the folder was listed, or is a link to nothing.
        return None
    except OSError as error:
        problem = Problem(known.file, 1, 1, f"cannot be read: {error.strerror or error}; check its permissions")
        return FileReading(name=known.name, file=known.file, key=UNREAD, is_racy=True, problems=(problem,))
    except RefusedSpec as refusal:
        return replace(blank, problems=refusal.problems)
    digest = hashlib.blake2b(data, digest_size=16).hexdigest()
    if known.digest == digest and not has_stale:
        return replace(known, key=key, is_racy=is_racy, others=others)
    return _parse_file(data, replace(blank, digest=digest), defaults, around)


def _parse_file(data: bytes, blank: FileReading, defaults: Defaults, around: Surroundings) -> FileReading:
    name, file = blank.name, blank.file
    try:
        if name.startswith(f"{AGENTS}/"):
            own = name.removeprefix(f"{AGENTS}/")
            _check_name(own, file)
            return read_agent(data, own, blank, around)
        _check_name(name, file)
        if name.endswith(TEMPLATE_MARK):
            template, warnings = read_template(data, name, file, around, defaults)
            return replace(blank, template=template, warnings=warnings)
        spec, warnings = read_text(data, name, file, around, defaults)
    except RefusedSpec as refusal:
        return replace(blank, problems=refusal.problems)
    return replace(blank, spec=spec, warnings=warnings)


def _check_name(name: str, file: str) -> None:
    if problem := find_name_problem(name):
        raise refuse(file, 1, 1, f"{problem}; rename the file")
    if name.endswith(TEMPLATE_MARK) and (find_template(name) != name or name.split("/")[-1] == TEMPLATE_MARK):
        raise refuse(
            file, 1, 1, f"a template's name has one {TEMPLATE_MARK}, at its end and behind a word; rename the file"
        )


def _read_bytes(path: str, found: os.stat_result, file: str) -> tuple[bytes, os.stat_result]:
    """Read the content, and the stat of the file that was read."""
    # Opening a FIFO would wait for a writer for ever. A FIFO may also replace the file now, so the open does not block.
    is_regular = stat.S_ISREG(found.st_mode)
    if is_regular:
        with open(path, "rb", buffering=0, opener=_open_unblocked) as stream:
            found = os.fstat(stream.fileno())
            is_regular = stat.S_ISREG(found.st_mode)
            if is_regular:
                # Read only as many bytes as the file has. A buffer for the largest allowed file costs 20 us, a tenth of
                # a spec.
                data = stream.read(min(found.st_size, MAX_BYTES) + 1) or b""
                return data if len(data) <= found.st_size else data + (stream.read(MAX_BYTES) or b""), found
    raise refuse(file, 1, 1, "this is no regular file; replace it by one, or remove it")


def _open_unblocked(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def _place(findings: list[Finding], data: bytes, file: str, defaults: Defaults) -> tuple[Problem, ...]:
    """Add lines to findings: in the file itself, or in wakeful.yaml if a default is wrong."""
    marks = read_marks(data, file)
    problems = []
    for path, is_key, text in findings:
        source, at, named = marks, path, file
        if defaults.marks is not None and path and path not in marks.values:
            source, at, named = defaults.marks, ("defaults", *path), defaults.file
        line, column = source.of_key(at) if is_key else source.of_value(at)
        problems.append(Problem(named, line, column, text))
    return tuple(problems)


# -- the files of a template ----------------------------------------------------------------------


def _expand(
    relative: str,
    reading: FileReading,
    known: Mapping[str, FileReading],
    before: Expansion | None,
    basis: tuple[Defaults, Surroundings],
) -> Expansion:
    """Make one reading for each file that the template's glob matches. Earlier readings of the same text are kept."""
    template = reading.template
    assert template is not None
    glob = find_files(template, basis[1].state)
    if before is not None and before.digest == reading.digest and before.glob == glob:
        return before
    readings: dict[str, FileReading] = {}
    # While the template itself is refused, its sessions are kept, and not taken as deleted.
    matches, refused = (
        judge_files(template, reading.name, glob.files) if glob.problem is None else ([], {reading.name: glob.problem})
    )
    for match in matches:
        key = f"{relative}{INSTANCE}{match.path}"
        digest = hashlib.blake2b(f"{reading.digest}{match.path}".encode(), digest_size=16).hexdigest()
        one = known.get(key)
        readings[key] = one if one is not None and one.digest == digest else _read_match(match, reading, digest, *basis)
    for name, words in refused.items():
        problem = Problem(reading.file, *template.place, f"{FOR_EACH}: {words}")
        one = FileReading(name=name, file=reading.file, key=UNREAD, is_racy=False, problems=(problem,))
        readings[f"{relative}{INSTANCE}{INSTANCE}{name}"] = one
    return Expansion(reading.digest, glob, readings)


def _read_match(
    match: Match, reading: FileReading, digest: str, defaults: Defaults, around: Surroundings
) -> FileReading:
    """Read a template for one file. The template itself reports its warnings, once."""
    template = reading.template
    assert template is not None
    built = _build(fill(template.value, match.path, match.stem), match.name, around, defaults)
    # Report each problem at the position of `for_each`, with the file's name. Few keys depend on the file, so that is
    # precise enough.
    problems = tuple(
        Problem(reading.file, *template.place, f"{words} (for '{match.path}')") for _, _, words in built.findings
    )
    return FileReading(
        name=match.name, file=reading.file, key=UNREAD, is_racy=False, digest=digest, spec=built.spec, problems=problems
    )


# -- the folder -----------------------------------------------------------------------------------


def _walk(
    top: str, folders: list[str], links: list[str], unlisted: list[tuple[str, Problem]]
) -> Iterator[tuple[str, str]]:
    """Yield the files that may be specs, sorted. Hidden files and files that editors leave behind are skipped."""
    waiting = [(top, "", 0)]
    entered: set[tuple[int, int]] = set()
    while waiting:
        folder, prefix, depth = waiting.pop()
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
            own = os.stat(folder)
        except (FileNotFoundError, NotADirectoryError):
            # The folder was deleted after the listing, or never existed. It counts as empty.
            continue
        except OSError as error:
            file = show_name(f"{os.path.basename(top)}/{prefix}")
            unlisted.append((prefix, Problem(file, 1, 1, f"cannot be listed: {error.strerror}; check its permissions")))
            continue
        # Do not follow a link to a folder above: the walk would never end.
        if (own.st_dev, own.st_ino) in entered:
            continue
        entered.add((own.st_dev, own.st_ino))
        folders.append(folder)
        for entry in entries:
            if entry.name.startswith(".") or entry.name.endswith("~"):
                continue
            if entry.is_symlink():
                links.append(entry.path)
            if entry.name.endswith((SUFFIX, ".yml")) and not entry.is_dir():
                yield entry.path, prefix + entry.name
            elif depth < DEEPEST_FOLDER and entry.is_dir():
                waiting.append((entry.path, f"{prefix}{entry.name}/", depth + 1))


def _assemble(
    files: dict[str, FileReading],
    warnings: list[Problem],
    folders: tuple[str, ...],
    links: tuple[str, ...],
    expansions: dict[str, Expansion],
    basis: tuple[Defaults, Surroundings],
    top: str,
) -> FolderReading:
    agents = {r.name.removeprefix(f"{AGENTS}/"): r.agent for r in files.values() if r.name.startswith(f"{AGENTS}/")}
    names = {reading.name for reading in files.values()}
    sessions: dict[str, SessionSpec] = {}
    digests: dict[str, str] = {}
    problems: dict[str, list[Problem]] = {}
    refused: dict[str, str] = {}
    for relative, reading in sorted(files.items()):
        # A session that also has a file of its own does not belong to the template.
        if INSTANCE in relative and f"{reading.name}{SUFFIX}" in files:
            continue
        file = os.path.join(top, relative.split(INSTANCE)[0])
        found = list(reading.problems)
        spec = reading.spec
        if spec is not None and spec.agent is not None:
            found += _judge_agent(spec, spec.agent, agents, partial(_make_problem, reading, file, basis[0]))
        if found:
            told = problems.setdefault(reading.file, [])
            told += [problem for problem in found if problem not in told]
            refused[reading.name] = "\n".join(map(str, found))
            continue
        warnings += reading.warnings
        if spec is not None:
            warnings += _warn_about_undeclared_sessions(spec, names, partial(_make_problem, reading, file, basis[0]))
            sessions[reading.name] = spec
            digests[reading.name] = reading.digest
    return FolderReading(
        sessions=sessions,
        text_digests=digests,
        problems=problems,
        warnings=warnings,
        refused=refused,
        agents={name: agent for name, agent in agents.items() if agent is not None},
        folders=folders,
        links=links,
        expansions=expansions,
        files=files,
        basis=basis,
    )


def _judge_agent(
    spec: SessionSpec, agent: str, agents: Mapping[str, AgentSpec | None], make: MakeProblem
) -> Iterator[Problem]:
    """Check a session's agent. An agent whose file cannot be read has its own problem, and is not judged here."""
    if agent not in agents:
        nearest = find_nearest(agent, sorted(agents))
        advice = f"did you mean '{nearest}'?" if nearest else f"write {AGENTS}/{agent}{SUFFIX}, or remove the key"
        yield make(("agent",), f"agent '{shorten(agent)}' does not exist; {advice}")
        return
    found = agents[agent]
    if found is None:
        return
    yield from _judge_servers(spec, found, make)
    if not isinstance(spec.run, PromptRun):
        return
    if not found.can_answer:
        words = (
            f"agent '{shorten(agent)}' has neither a model nor acp, so nothing would answer the prompt; add model: "
            f"PROVIDER:NAME to {AGENTS}/{agent}{SUFFIX}"
        )
        yield make(("agent",), words)
    if (blurred := find_ambiguous_binding(spec, found)) is not None:
        name, words = blurred
        yield make(("bindings", name, "access"), f"{words}; change that, or use isolation: strict")


def _judge_servers(spec: SessionSpec, agent: AgentSpec, make: MakeProblem) -> Iterator[Problem]:
    """Check that each MCP server in a binding is a server of the agent."""
    known = [server.name for server in agent.mcp]
    for binding in spec.bindings:
        if not isinstance(binding, ServiceBinding) or binding.server is None or binding.server in known:
            continue
        nearest = find_nearest(binding.server, known)
        advice = (
            f"did you mean 'mcp:{nearest}'?" if nearest else f"declare it under mcp in {AGENTS}/{agent.name}{SUFFIX}"
        )
        words = f"agent '{shorten(agent.name)}' has no server '{shorten(binding.server)}'; {advice}"
        yield make(("bindings", binding.name, "service"), words)


def _warn_about_undeclared_sessions(spec: SessionSpec, names: set[str], make: MakeProblem) -> Iterator[Problem]:
    """Warn about a bound session that is not declared: it may come later, or be misspelt."""
    for binding in spec.bindings:
        if isinstance(binding, SessionBinding) and binding.session not in names:
            nearest = find_nearest(binding.session, names)
            advice = f"did you mean '{nearest}'?" if nearest else "this waits until it is"
            words = f"session '{shorten(binding.session)}' is not declared; {advice}"
            yield make(("bindings", binding.name, "session"), words)


def _make_problem(reading: FileReading, path: str, defaults: Defaults, key: Path, text: str) -> Problem:
    """Report a problem with a value at its place: in the file itself, or in wakeful.yaml if it is a default."""
    marks, default = _read_marks_again(path), ("defaults", *key)
    if defaults.marks is not None and key not in marks.values and default in defaults.marks.values:
        return Problem(defaults.file, *defaults.marks.of_value(default), text)
    return Problem(reading.file, *marks.of_value(key), text)


def locate(path: str, key: Path) -> tuple[int, int]:
    """Find the line and column of a value in a file that was read without marks."""
    return _read_marks_again(path).of_value(key)


def _read_marks_again(path: str) -> Marks:
    try:
        return read_marks(FilePath(path).read_bytes(), path)
    except (OSError, RefusedSpec):
        # The file changed since. The next reading will have the right place.
        return Marks()
