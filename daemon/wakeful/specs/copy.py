"""Copies a spec for another session: the same text and comments, with the written bindings commented out.

The pure half of `wakeful new B --from A`; new.py writes the file. Two sessions that write one path are refused, so the
copy writes nothing until a person has given it paths of its own.
"""

from __future__ import annotations

import json
from typing import Any

from wakeful.errors import CallerError
from wakeful.specs.build import Surroundings
from wakeful.specs.folder_reading import SUFFIX, read_text
from wakeful.specs.problem import RefusedSpec
from wakeful.specs.templates import FOR_EACH
from wakeful.specs.yaml_text import Marks, read_mapping, read_marks


def copy_spec(data: bytes, old: str, new: str) -> str:
    """Make the text of `new` from that of `old`. Raises SpecError if `old` cannot be read."""
    file = f"{old}{SUFFIX}"
    value = read_mapping(data, file)
    if FOR_EACH in value:
        raise CallerError(f"{old} is a template; copy its file, and change what it is for each of")
    bindings = value.get("bindings")
    written = [name for name, one in bindings.items() if _writes(one)] if isinstance(bindings, dict) else []
    wanted = _without(value, written)
    text = data.decode("utf-8-sig")
    edited = _comment_out(text, read_marks(data, file), written, is_all="bindings" not in wanted) if written else text
    if not _says(edited, wanted, file):
        edited = _write_out(wanted, value, written)
    lines = [f"# {new}: begun from {old}, with its facts and hand-off."]
    if written:
        lines.append(
            f"# {old} writes what is commented out below: give {new} a path of its own there, then take the marks away."
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
