"""Warnings about a valid spec: likely mistakes, and promises that cannot be kept. Called only by `check`.

Likely mistakes are shell syntax in a command, missing programs, and patterns that match no file. They depend on the
machine and the moment, so the daemon, which caches its parsed specs, does not look for them.

Promises that cannot be kept are budgets that cannot be enforced, and questions that no person is there to answer. They
need all sessions, agents and prices together. Every finding says what to write instead. Reads the file system and
starts no program.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from wakeful.core.agents.prices import Prices, find_price
from wakeful.core.deciding.acting_agent import merge_tools
from wakeful.core.deciding.holds import find_ask_timeout
from wakeful.core.looking.patterns import Excludes, Pattern, intersects, parse_under
from wakeful.core.spec.agent import AgentSpec
from wakeful.core.spec.bindings import CommitsBinding, FileBinding, MessageBinding
from wakeful.core.spec.budget import OF_REQUESTS, PERIODS, Budget, counts_money
from wakeful.core.spec.session import (
    DEFAULT_EXCLUDES,
    CommandRun,
    PromptRun,
    ScriptRun,
    SessionSpec,
)
from wakeful.specs.command_words import SHELL_WORDS, find_program, find_signs, skip_environment
from wakeful.specs.model_errors import Finding, find_nearest
from wakeful.specs.new_spec import quote, spell_in_list
from wakeful.specs.yaml_text import Path, shorten

# The most bytes of a script's first line that the kernel reads.
_FIRST_LINE_BYTES = 256
# The most folders listed to find a match of a pattern. Beyond that, a match is assumed.
_MOST_FOLDERS = 2_000
_SHELLS = ("sh", "dash", "ash", "bash")


class Command(Struct, frozen=True):
    """One command of a spec: its key, the folder it is started in, and the PATH in which it is looked for."""

    path: Path
    argv: tuple[str, ...]
    cwd: str
    search_path: str


class Mistakes:
    """Finds likely mistakes, spec by spec.

    `search_path` is the PATH of runs. `written` are the patterns that sessions write, whose files may come later.

    One instance serves one check of a folder. It caches the result for a pattern, because many sessions may bind it.
    """

    def __init__(self, search_path: str, written: Sequence[Pattern]) -> None:
        self._search_path = search_path
        self._written = written
        self._is_found: dict[tuple[str, str, tuple[str, ...]], bool] = {}

    def find(self, spec: SessionSpec) -> Iterator[Finding]:
        for command in _list_commands(spec, self._search_path):
            yield from _judge_signs(command, spec)
            yield from (
                finding
                for path, finding in _judge_program(command, spec.root, spec.run.cwd if spec.run is not None else None)
                if not self._is_written(path)
            )
        if isinstance(spec.run, ScriptRun) and (words := _judge_first_line_of_text(spec.run.text)) is not None:
            yield ("run", "script"), False, words
        for binding in spec.files:
            if (
                binding.access != "write"
                and binding.missing != "wait"
                and (words := self._judge_pattern(binding, spec.root)) is not None
            ):
                yield ("bindings", binding.name, "file"), False, words

    def find_of_server(self, argv: tuple[str, ...], root: str) -> Iterator[str]:
        """Yield the reasons why a program that an agent starts in root would not start."""
        command = Command((), argv, root, self._search_path)
        yield from (words for path, (_, _, words) in _judge_program(command, root, None) if not self._is_written(path))

    def _is_written(self, path: str | None) -> bool:
        return path is not None and any(pattern.matches(os.path.normpath(path)) for pattern in self._written)

    def _judge_pattern(self, binding: FileBinding, root: str) -> str | None:
        pattern = parse_under(binding.pattern, root)
        key = (binding.pattern, root, binding.exclude)
        if key not in self._is_found:
            self._is_found[key] = _finds_any(pattern, Excludes.build(root, DEFAULT_EXCLUDES, binding.exclude))
        # Most patterns match a file. Only for the others is it checked whether a session writes them.
        if self._is_found[key] or any(intersects(pattern, other) for other in self._written):
            return None
        return _describe_absence(pattern, shorten(binding.pattern, 80), root)


def _list_commands(spec: SessionSpec, search_path: str) -> Iterator[Command]:
    run = spec.run
    if run is not None:
        cwd, own_path = os.path.join(spec.root, run.cwd or ""), run.env.get("PATH", search_path)
        if isinstance(run, CommandRun):
            yield Command(("run", "command"), run.argv, cwd, own_path)
        if run.check:
            yield Command(("run", "check"), run.check, cwd, own_path)
    for binding in spec.bindings:
        if binding.command:
            yield Command(("bindings", binding.name, binding.kind), binding.command, spec.root, search_path)


# -- signs of a shell -----------------------------------------------------------------------------


def _judge_signs(command: Command, spec: SessionSpec) -> Iterator[Finding]:
    signs = list(find_signs(command.argv, command.cwd, [binding.pattern for binding in spec.files]))
    if signs:
        line = _join(command.argv, {sign.place for sign in signs})
        words = f"{signs[0].words}, and no shell reads a command; write instead: {_offer_shell(command, line)}"
        yield (*command.path, signs[0].place), False, words


def _join(argv: Sequence[str], raw: set[int]) -> str:
    """Make the shell line that the author meant. Signs of a shell stay as they are; other words get needed quotes."""
    return " ".join(word if index in raw else shlex.quote(word) for index, word in enumerate(argv))


def _offer_shell(command: Command, line: str) -> str:
    """Describe how to use a shell: the key `script` for a run; for a check and a probe, the shell as the program."""
    return f"script: {quote(line)}" if command.path == ("run", "command") else f"[sh, -c, {quote(line)}]"


# -- programs -------------------------------------------------------------------------------------


def _judge_program(command: Command, root: str, cwd: str | None) -> Iterator[tuple[str | None, Finding]]:
    """Find problems with the program, or with the script that an interpreter runs.

    Each problem comes with the path of the file, or None for a program given by name.
    """
    at = skip_environment(command.argv)
    if at == len(command.argv):
        return
    program = command.argv[at]
    path = os.path.join(command.cwd, program) if "/" in program else None
    words = _judge_file(program, path, command) if path is not None else _judge_name(program, command)
    if words is not None:
        yield path, ((*command.path, at), False, words)
        return
    script = find_program(command.argv, root, cwd)
    if script is None or os.path.exists(path := os.path.join(root, script)):
        return
    index = next(
        (at for at, word in enumerate(command.argv) if os.path.normpath(os.path.join(command.cwd, word)) == path), 0
    )
    words = f"'{shorten(command.argv[index], 80)}' does not exist; the path begins at {shorten(command.cwd, 80)}"
    yield path, ((*command.path, index), False, words)


def _judge_name(program: str, command: Command) -> str | None:
    if shutil.which(program, path=command.search_path) is not None:
        return None
    if program in SHELL_WORDS:
        return (
            f"'{program}' is a word of the shell, and no program; write instead: "
            f"{_offer_shell(command, _join(command.argv, set()))}"
        )
    nearest = find_nearest(program, _list_programs(command.search_path))
    if nearest is not None:
        return f"no program '{shorten(program)}' in PATH; did you mean '{nearest}'?"
    return (
        f"no program '{shorten(program)}' in PATH ({shorten(command.search_path, 120)}); install it, "
        "or name it by its path"
    )


def _list_programs(search_path: str) -> list[str]:
    names: set[str] = set()
    for folder in search_path.split(":"):
        try:
            names.update(os.listdir(folder or "."))
        except OSError:
            # A PATH often names folders that do not exist.
            continue
    return sorted(names)


def _judge_file(program: str, path: str, command: Command) -> str | None:
    shown = f"'{shorten(program, 80)}'"
    if not os.path.isfile(path):
        return (
            f"{shown} is a folder; name a program"
            if os.path.isdir(path)
            else f"{shown} does not exist; the path begins at {shorten(command.cwd, 80)}"
        )
    interpreter = _read_interpreter(path)
    if not os.access(path, os.X_OK):
        first = os.path.basename(interpreter[0]) if interpreter else "sh"
        named = interpreter[1] if first == "env" and len(interpreter) > 1 else first
        return (
            f"{shown} may not be executed; chmod +x {shlex.quote(os.path.normpath(program))}, or name its "
            f"interpreter first: [{named}, {spell_in_list(program)}]"
        )
    return _judge_interpreter(shown, interpreter, command.search_path)


def _judge_interpreter(shown: str, words: list[str], search_path: str) -> str | None:
    """Find a problem with the program in a script's first line: a whole path, or `env` and a name to look for."""
    if not words:
        return None
    if any(word.endswith("\r") for word in words):
        return (
            f"{shown} ends its first line with a carriage return, which becomes part of the interpreter's name; "
            "save it with Unix line ends"
        )
    if not os.path.exists(words[0]):
        return (
            f"{shown} asks in its first line for {shorten(words[0], 80)}, which is not there; install it, "
            "or correct that line"
        )
    behind = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    if os.path.basename(words[0]) == "env" and behind and shutil.which(behind[0], path=search_path) is None:
        return (
            f"{shown} asks in its first line for {shorten(behind[0], 80)}, which is not in PATH; install it, "
            "or correct that line"
        )
    return None


def _read_interpreter(path: str) -> list[str]:
    """Read the words after `#!`, with a carriage return at their end if there is one.

    Empty if the file has no such line or cannot be read.
    """
    try:
        with open(path, "rb") as file:
            first = file.read(_FIRST_LINE_BYTES).split(b"\n", 1)[0]
    except OSError:
        return []
    return (
        [word for word in os.fsdecode(first[2:]).replace("\t", " ").split(" ") if word]
        if first.startswith(b"#!")
        else []
    )


def _judge_first_line_of_text(text: str) -> str | None:
    words = text.lstrip("\n").split("\n", 1)[0].removeprefix("#!").split() if text.lstrip("\n").startswith("#!") else []
    names = [os.path.basename(word) for word in words if not word.startswith("-")]
    program = next((name for name in names if name != "env"), None)
    if program is None or program in _SHELLS:
        return None
    return (
        "a script is read by sh, whatever its first line says; put it into a file, and write command: "
        f"[{spell_in_list(program)}, FILE]"
    )


# -- patterns -------------------------------------------------------------------------------------


def _describe_absence(pattern: Pattern, shown: str, root: str) -> str:
    if pattern.is_literal:
        return f"there is no {shown}{_explain_absence(pattern.base, is_file=True)}"
    if not os.path.isdir(pattern.base):
        return f"no file matches {shown}{_explain_absence(pattern.base)}"
    return f"no file matches {shown} in {shorten(root, 80)} yet; it wakes no session until one comes"


def _explain_absence(path: str, *, is_file: bool = False) -> str:
    """Name the first part of a path that does not exist, and suggest a similar name."""
    above = os.path.dirname(path)
    while not os.path.isdir(above):
        path, above, is_file = above, os.path.dirname(above), False
    nearest = find_nearest(os.path.basename(path), sorted(os.listdir(above)))
    advice = f"did you mean '{nearest}'?" if nearest else "it wakes no session until it is there"
    return f" in {shorten(above, 80)}; {advice}" if is_file else f": there is no folder {shorten(path, 80)}; {advice}"


def _finds_any(pattern: Pattern, excludes: Excludes) -> bool:
    if pattern.is_literal:
        return os.path.lexists(pattern.base)
    start = len(pattern.base.rstrip("/")) + 1
    waiting, entered = [pattern.base], 0
    while waiting:
        entered += 1
        if entered > _MOST_FOLDERS:
            return True
        folder = waiting.pop()
        try:
            entries = list(os.scandir(folder))
        except OSError:
            # The daemon reports a folder that cannot be listed.
            continue
        for entry in entries:
            path = f"{folder.rstrip('/')}/{entry.name}"
            if excludes.covers(path, start) is not None:
                continue
            if entry.is_dir(follow_symlinks=False):
                if pattern.enters(path):
                    waiting.append(path)
            elif pattern.matches(path):
                return True
    return False


# The ACP programs that report the size of their requests while they work. The budgets of others are checked against our
# estimate only.
TELLS_SIZE = ("claude", "codex")


class UnkeptPromise(NamedTuple):
    """A promise that cannot be kept: the file of a session or an agent, the key, and the words."""

    file: str
    key: tuple[str, ...]
    words: str


def find_unkept(
    sessions: Mapping[str, SessionSpec], agents: Mapping[str, AgentSpec], prices: Prices
) -> Iterator[UnkeptPromise]:
    for session in sessions.values():
        agent = agents.get(session.agent or "") if isinstance(session.run, PromptRun) else None
        yield from _find_of_session(session, agent)
    for agent in agents.values():
        # The budgets of a sub-agent's callers also pay for its work.
        payers = {agent.name, *(one.name for one in agents.values() if agent.name in one.subagents)}
        own = [
            session.budget
            for session in sessions.values()
            if session.agent in payers and isinstance(session.run, PromptRun)
        ]
        yield from _find_of_agent(agent, [*(agents[name].budget for name in payers), *own], prices)


def _find_of_session(session: SessionSpec, agent: AgentSpec | None) -> Iterator[UnkeptPromise]:
    if session.run is None:
        return
    spent = name_spent(session.budget)
    if spent and not isinstance(session.run, PromptRun):
        words = (
            f"a budget of {spent} does not hold for its command: a command does not report what it spends; use "
            "wall, cpu, written or runs"
        )
        yield UnkeptPromise(session.name, ("budget",), words)
    if (
        (asks := find_asking(session, agent)) is not None
        and find_ask_timeout(session, agent) is None
        and is_unattended(session)
    ):
        words = (
            f"{asks}, and it may be woken when no person is there: it sleeps until a person answers; "
            "ask_timeout, such as 2h, denies it after that time"
        )
        yield UnkeptPromise(session.name, (), words)


def _find_of_agent(agent: AgentSpec, budgets: list[Budget | None], prices: Prices) -> Iterator[UnkeptPromise]:
    names = [model.name for model in agent.models] or [agent.model_name] * bool(agent.acp)
    if any(counts_money(budget) for budget in budgets):
        for name in names:
            if find_price(prices, name) is None:
                yield UnkeptPromise(
                    f"agents/{agent.name}",
                    (),
                    f"the price of {name} is not known, and a budget counts money; add it to prices in wakeful.yaml",
                )
    spent = next((words for budget in budgets if (words := name_spent(budget))), None)
    if spent and agent.acp and not any(word in agent.model_name.lower() for word in TELLS_SIZE):
        words = (
            f"{agent.model_name} may not report its spending while it works: a budget of {spent} is then "
            "checked against our estimate"
        )
        yield UnkeptPromise(f"agents/{agent.name}", (), words)


def name_spent(budget: Budget | None) -> str | None:
    """Name the amounts of a budget that requests to a model use up. None if it limits none of them."""
    bounds = [budget.run, *(budget.bound(period) for period in PERIODS)] if budget is not None else []
    return (
        " and ".join(
            name
            for name in OF_REQUESTS
            if any(getattr(bound, name) is not None for bound in bounds if bound is not None)
        )
        or None
    )


def find_asking(session: SessionSpec, agent: AgentSpec | None) -> str | None:
    """Name the keys by which the session may ask a person a question. None if there are none."""
    if session.is_approved_first:
        return "it asks before each run (approve: before_run)"
    tools = merge_tools(agent.tools, session.tools) if agent is not None else {}
    asked = sorted(name for name, policy in tools.items() if policy == "ask")
    return f"it asks before it uses {', '.join(asked)} (tools)" if asked else None


def is_unattended(session: SessionSpec) -> bool:
    """Do only machines wake the session: a clock, a probe, another session?

    A person who saves a file, commits or writes a message is assumed to be present.
    """
    waking = [binding for binding in session.bindings if binding.wake and not isinstance(binding, MessageBinding)]
    return bool(waking) and not any(isinstance(binding, FileBinding | CommitsBinding) for binding in waking)
