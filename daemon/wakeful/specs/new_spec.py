"""Makes a new spec: from a person's answers, valid and with comments for editing; or as a copy of another spec.

The pure half of `wakeful new`: the command line asks or takes flags, this module renders and validates. A copy has the
same text and comments, with the written bindings commented out, because two sessions that write one path are refused.
`put_new` is the only function that writes to the disk, and it never replaces a file.
"""

from __future__ import annotations

import json
import os
import re
import textwrap
from pathlib import Path
from typing import Any

from msgspec import Struct

from wakeful.core.spec.bindings import RESERVED_BINDINGS
from wakeful.core.spec.session import find_template
from wakeful.errors import CallerError
from wakeful.specs.folder_reading import AGENTS, SUFFIX, read_text
from wakeful.specs.problem import RefusedSpec
from wakeful.specs.spec_builder import MESSAGE, RUN_KINDS, Surroundings
from wakeful.specs.templates import FOR_EACH
from wakeful.specs.value_parsers import find_name_problem
from wakeful.specs.yaml_text import Marks, read_mapping, read_marks

# Text that YAML reads back unchanged without quotes. All other text is quoted.
_PLAIN = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./=+@-]*( [A-Za-z0-9_./=+@(][A-Za-z0-9_./=+@(),;'-]*)*")
_PLAIN_IN_LIST = re.compile(r"[A-Za-z0-9_./-][A-Za-z0-9_./=+@-]*")


class Answers(Struct, frozen=True, kw_only=True):
    """The choices for a new session. Without a command, script or prompt, the spec gets an example run to replace."""

    files: tuple[str, ...] = ()
    commits: str | None = None
    branch: str | None = None
    cron: str | None = None
    every: str | None = None
    webhook: str | None = None
    secret: str | None = None
    command: tuple[str, ...] = ()
    script: str | None = None
    prompt: str | None = None
    writes: tuple[str, ...] = ()
    objective: str | None = None
    agent: str | None = None
    priority: int | None = None


def render_spec(name: str, answers: Answers) -> str:
    """Render `sessions.d/<name>.yaml`. Raises SpecError if an answer is not valid in a spec."""
    _check_name(name)
    given = [kind for kind in RUN_KINDS if getattr(answers, kind)]
    if len(given) > 1:
        raise CallerError(f"session '{name}' was given a {' and a '.join(given)}; choose one of them")
    if answers.prompt and not answers.agent:
        raise CallerError(f"session '{name}' was given a prompt, and no agent to answer it; name an agent of {AGENTS}/")
    if (answers.webhook is None) != (answers.secret is None):
        raise CallerError(
            "a webhook and the name of the secret that signs its deliveries go together: --webhook github --secret NAME"
        )
    lines = [
        f"# {name}: rests until one of its bindings changes, then runs.",
        "# Check it with `wakeful check`; see what would wake it with `wakeful plan`.",
    ]
    if answers.agent:
        lines.append(f"agent: {_scalar(answers.agent)}")
    lines.append(f"objective: {_scalar(answers.objective or f'Say in one sentence what {name} is for.')}")
    if answers.priority is not None:
        lines.append(f"priority: {answers.priority}  # 0 to 100, higher first")
    lines += _render_bindings(answers)
    lines += _render_run(answers)
    text = "\n".join(lines) + "\n"
    read_text(text.encode(), name, f"{name}{SUFFIX}", Surroundings("/"))
    return text


def render_open(name: str, answers: Answers, root: str | None) -> str:
    """Render the text of a session that is opened without a file. Without a command, script or prompt it has no run."""
    _check_name(name)
    lines = [f"# {name}: opened without a file; `wakeful new {name} --from {name}` writes it."]
    if answers.agent:
        lines.append(f"agent: {_scalar(answers.agent)}")
    if answers.objective:
        lines.append(f"objective: {_scalar(answers.objective)}")
    if answers.priority is not None:
        lines.append(f"priority: {answers.priority}  # 0 to 100, higher first")
    if root is not None:
        lines.append(f"root: {quote(root)}")
    has_run = any(getattr(answers, kind) for kind in RUN_KINDS)
    has_bindings = answers.files or answers.writes or answers.commits or answers.cron or answers.every
    if has_bindings:
        lines += _render_bindings(answers)
    if has_run:
        lines += _render_run(answers)
    if not has_run and not has_bindings and len(lines) == 1:
        # A spec must be a mapping, even if it has no other keys.
        lines.append("tags: []")
    return "\n".join(lines) + "\n"


def write_new(specs_dir: Path, name: str, answers: Answers) -> Path:
    """Write the spec to a new file, and return its path. Raises if the file exists."""
    text = render_spec(name, answers)
    if answers.agent and not (specs_dir / AGENTS / f"{answers.agent}{SUFFIX}").exists():
        raise CallerError(
            f"agent '{answers.agent}' does not exist; write {AGENTS}/{answers.agent}{SUFFIX} first, or leave it out"
        )
    return put_new(specs_dir, name, text)


def check_free(specs_dir: Path, name: str) -> None:
    """Refuse a name that no new session can have, before the person is asked for anything else."""
    _check_name(name)
    if (specs_dir / f"{name}{SUFFIX}").exists():
        raise CallerError(f"{specs_dir / name}{SUFFIX} exists already; choose another name, or edit that file")


def render_copy(specs_dir: Path, name: str, origin: str) -> str:
    """Render a spec that begins from another session's spec. Raises if it could not be written."""
    check_free(specs_dir, name)
    if problem := find_name_problem(origin):
        raise CallerError(problem)
    source = specs_dir / f"{origin}{SUFFIX}"
    try:
        return copy_spec(source.read_bytes(), origin, name)
    except FileNotFoundError:
        if (template := find_template(origin)) and template != origin:
            raise CallerError(
                f"{origin} has no file of its own, it comes from {template}{SUFFIX}; begin from a session that has one"
            ) from None
        raise CallerError(
            f"there is no {source}; name a session of this folder, or another folder with --specs"
        ) from None
    except OSError as error:
        raise CallerError(f"{source} cannot be read: {error.strerror}") from None


def put_new(specs_dir: Path, name: str, text: str) -> Path:
    """Write a spec to a new file, and return its path. Raises if the file exists."""
    path = specs_dir / f"{name}{SUFFIX}"
    path.parent.mkdir(parents=True, exist_ok=True)
    # Written under another name and then linked, so that the daemon, which watches this folder, never reads half a
    # file.
    half = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        half.write_text(text, encoding="utf-8")
        os.link(half, path)
    except FileExistsError:
        raise CallerError(f"{path} exists already; choose another name, or edit that file") from None
    finally:
        half.unlink(missing_ok=True)
    return path


def _check_name(name: str) -> None:
    if problem := find_name_problem(name):
        raise CallerError(problem)
    if name.endswith("@"):
        raise CallerError(f"'{name}' ends in @, which is for templates; choose another name")


def _render_bindings(answers: Answers) -> list[str]:
    lines = []
    names: set[str] = set()
    for pattern in answers.files:
        lines.append(f"  {name_binding(pattern, 'input', names)}: {{file: {spell_in_list(pattern)}}}")
    if answers.commits is not None:
        branch = f", branch: {spell_in_list(answers.branch)}" if answers.branch else ""
        lines.append(f"  {name_binding('code', 'code', names)}: {{commits: {spell_in_list(answers.commits)}{branch}}}")
    if answers.cron is not None:
        lines.append(f"  {name_binding('clock', 'clock', names)}: {{cron: {spell_in_list(answers.cron)}}}")
    if answers.every is not None:
        lines.append(f"  {name_binding('beat', 'beat', names)}: {{every: {spell_in_list(answers.every)}}}")
    if answers.webhook is not None:
        secret = spell_in_list(answers.secret or "")
        hook = f"{{webhook: {spell_in_list(answers.webhook)}, secret: {secret}}}"
        lines.append(f"  {name_binding(answers.webhook, 'hook', names)}: {hook}")
    if lines:
        lines.insert(0, "  # What it reads: a new version of any of these wakes it (add `wake: false` to only read).")
    if answers.writes:
        lines.append("  # What it writes: never wakes it, and wakes the sessions that read it.")
    for pattern in answers.writes:
        lines.append(f"  {name_binding(pattern, 'output', names)}: {{file: {spell_in_list(pattern)}, access: write}}")
    return ["bindings:", *lines] if lines else ["# bindings:", '#   input: {file: "data/*.csv"}']


def name_binding(text: str, otherwise: str, taken: set[str]) -> str:
    """Make a binding's name from a path: `data/sales-2024.csv` becomes sales-2024, with a number if that is taken."""
    stem = re.sub(r"\.[A-Za-z0-9]+$", "", text.rstrip("/").rsplit("/", 1)[-1])
    words = re.findall(r"[A-Za-z0-9]+", stem) or re.findall(r"[A-Za-z0-9]+", text.rsplit("/", 1)[0])
    name = "-".join(words).lower()[:40]
    if not name or not name[0].isalpha() or name in (*RESERVED_BINDINGS, MESSAGE):
        name = otherwise
    chosen, number = name, 2
    while chosen in taken:
        chosen, number = f"{name}-{number}", number + 1
    taken.add(chosen)
    return chosen


def _render_run(answers: Answers) -> list[str]:
    lines = ["run:"]
    if answers.prompt:
        lines.append(
            f"  prompt: {quote(answers.prompt)}  # what its agent is asked; what changed is told to it as well"
        )
    elif answers.script:
        lines.append("  script: |")
        lines += [f"    {line}" if line else "" for line in textwrap.dedent(answers.script).strip("\n").split("\n")]
    else:
        words = answers.command or ("echo", "replace me by a program and its words")
        lines.append(f"  command: [{', '.join(map(spell_in_list, words))}]  # words, never a shell string")
    return [*lines, "  timeout: 10m"]


def _scalar(text: str) -> str:
    return text if _PLAIN.fullmatch(text) else quote(text)


def spell_in_list(text: str) -> str:
    return text if _PLAIN_IN_LIST.fullmatch(text) and text != "-" else quote(text)


def quote(text: str) -> str:
    return '"' + "".join(_escape(character) for character in text) + '"'


def _escape(character: str) -> str:
    if character in '\\"':
        return f"\\{character}"
    # YAML would fold line breaks, and invisible characters should be visible in a file that people edit.
    return character if character.isprintable() else f"\\U{ord(character):08x}"


def copy_spec(data: bytes, old: str, new: str) -> str:
    """Make the text of `new` from that of `old`. Raises SpecError if `old` cannot be read."""
    file = f"{old}{SUFFIX}"
    value = read_mapping(data, file)
    if FOR_EACH in value:
        raise CallerError(f"{old} is a template; copy its file, and change its for_each")
    bindings = value.get("bindings")
    written = [name for name, one in bindings.items() if _writes(one)] if isinstance(bindings, dict) else []
    wanted = _without(value, written)
    text = data.decode("utf-8-sig")
    edited = _comment_out(text, read_marks(data, file), written, is_all="bindings" not in wanted) if written else text
    if not _says(edited, wanted, file):
        edited = _write_out(wanted, value, written)
    lines = [f"# {new}: copied from {old}, with its facts and hand-off."]
    if written:
        lines.append(
            f"# The outputs of {old} are commented out below: give {new} its own paths there, then remove the marks."
        )
    whole = "\n".join((*lines, edited.lstrip("\n")))
    read_text(whole.encode(), new, f"{new}{SUFFIX}", Surroundings("/"))
    return whole


def _writes(binding: Any) -> bool:
    return isinstance(binding, dict) and binding.get("access") in ("write", "both")


def _without(value: dict[str, Any], written: list[str]) -> dict[str, Any]:
    if not written:
        return value
    kept = {name: one for name, one in value["bindings"].items() if name not in written}
    rest = {key: one for key, one in value.items() if key != "bindings"}
    return {**rest, "bindings": kept} if kept else rest


def _comment_out(text: str, marks: Marks, written: list[str], *, is_all: bool) -> str:
    """Put a comment mark before each line of these bindings, as a person would.

    The result is right only if each binding is on lines of its own; the caller checks it.
    """
    lines = text.split("\n")
    starts = [marks.of_key(("bindings", name)) for name in written] + ([marks.of_key(("bindings",))] if is_all else [])
    for line, column in starts:
        index = line - 1
        lines[index] = _mark(lines[index], column)
        index += 1
        # The lines of a key are indented deeper than the key itself.
        while not is_all and index < len(lines) and _indent(lines[index]) >= column:
            lines[index] = _mark(lines[index], column)
            index += 1
    if is_all:
        return _mark_all(lines, marks.of_key(("bindings",))[0])
    return "\n".join(lines)


def _mark_all(lines: list[str], start: int) -> str:
    """Comment out the whole block of bindings, because none is left."""
    index = start
    while index < len(lines) and (_indent(lines[index]) > 0 or not lines[index].strip()):
        if lines[index].strip():
            lines[index] = _mark(lines[index], 1)
        index += 1
    return "\n".join(lines)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" ")) if line.strip() else 0


def _mark(line: str, column: int) -> str:
    return line if line.lstrip().startswith("#") else f"{line[: column - 1]}# {line[column - 1 :]}"


def _says(text: str, wanted: dict[str, Any], file: str) -> bool:
    try:
        return read_mapping(text.encode(), file) == wanted
    except RefusedSpec:
        return False


def _write_out(wanted: dict[str, Any], value: dict[str, Any], written: list[str]) -> str:
    """Write the same keys as JSON (which is YAML) without the comments, for text that cannot be edited line by line."""
    lines: list[str] = []
    for key, one in wanted.items():
        if key == "bindings":
            lines += ["bindings:", *(f"  {_show(name)}: {_show(binding)}" for name, binding in one.items())]
        else:
            lines.append(f"{_show(key)}: {_show(one)}")
    gone = [f"  # {_show(name)}: {_show(value['bindings'][name])}" for name in written]
    place = lines.index("bindings:") + 1 if "bindings:" in lines else len(lines)
    return (
        "\n".join([*lines[:place], *(gone if "bindings:" in lines else ["# bindings:", *gone]), *lines[place:]]) + "\n"
    )


def _show(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
