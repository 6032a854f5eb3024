"""Translates errors of the models for the author of a file: where, what was found, what was expected, what to do.

`folder_reading`, and settings through it, call `translate` with pydantic's error and the data of the file. A key of a
later version is answered with "not yet", and for a wrong key the nearest right key is suggested. `folder_reading` turns
each finding into a Problem.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Literal

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from wakeful.core.spec.agent import MCP_TOOL_PREFIX, TOOLS
from wakeful.specs.models import BINDING_MODELS, AgentKeys, BindingKeys, Keys, RunKeys, SessionKeys
from wakeful.specs.settings_models import DaemonKeys
from wakeful.specs.yaml_text import Path, shorten

FileKind = Literal["session", "agent", "daemon"]

MODELS: dict[FileKind, type[Keys]] = {"session": SessionKeys, "agent": AgentKeys, "daemon": DaemonKeys}

NOT_YET = "not yet"
# Keys of the format that are not implemented yet. They are refused with a message of their own.
NOT_YET_SESSION = ("hosts",)
NOT_YET_KINDS: tuple[str, ...] = ()
NOT_YET_OPTIONS: tuple[str, ...] = ()
NOT_YET_DAEMON = ("store",)

# The most problems reported of one file. A file with more is probably the wrong file.
MOST_PROBLEMS = 20

Finding = tuple[Path, bool, str]
"""A path in the file, whether its key (rather than its value) is at fault, and the words."""


def translate(error: ValidationError, data: dict[str, Any], kind: FileKind) -> list[Finding]:
    """List up to MOST_PROBLEMS problems of `data`, in the order of the model."""
    details = error.errors(include_url=False, include_input=False)[:MOST_PROBLEMS]
    # A misspelt key is one mistake, not an unknown key and a missing one.
    misspelt = {detail["loc"][:-1] for detail in details if detail["type"] == "extra_forbidden"}
    told = (detail for detail in details if detail["type"] != "missing" or detail["loc"][:-1] not in misspelt)
    return [_translate_one(detail, data, kind) for detail in told]


def _translate_one(detail: ErrorDetails, data: dict[str, Any], kind: FileKind) -> Finding:
    path = _real_path(detail["loc"], data)
    match detail["type"]:
        case "extra_forbidden":
            return path, True, _explain_unknown_key(path, data, kind)
        case "union_tag_not_found" | "union_tag_invalid" | "union_tag":
            return _explain_kind(path, find_value(data, path))
        case "value_error":
            return path, False, _words_of_ours(detail, path)
        case "literal_error":
            return path, False, _explain_choice(path, find_value(data, path), detail)
        case "greater_than_equal" | "less_than_equal":
            bound = "at least" if detail["type"].startswith("greater") else "at most"
            limit = next(iter(detail.get("ctx", {}).values()))
            return path, False, f"{path[-1]} is {find_value(data, path)}; expected {bound} {limit}"
        case "missing":
            return path[:-1], False, f"key '{path[-1]}' is missing; add it"
        case "model_type" | "model_attributes_type" | "dict_type":
            return (
                path,
                False,
                f"{_name(path)} needs keys and values, found {_describe(find_value(data, path))}; write {{key: value}}",
            )
        case other:
            return path, False, f"{_name(path)}: {detail['msg']} ({other})"


def _real_path(loc: Iterable[str | int], data: Any) -> Path:
    """Convert pydantic's location to a path in the file. pydantic also names a binding's kind, and the key of a short
    form.
    """
    steps = list(loc)
    if len(steps) > 2 and steps[0] == "bindings" and steps[2] in BINDING_MODELS:
        del steps[2]
    # A list of one item may be written as the item.
    steps = [
        step
        for at, step in enumerate(steps)
        if isinstance(step, str) or isinstance(find_value(data, tuple(steps[:at])), list)
    ]
    while len(steps) > 1 and not isinstance(find_value(data, tuple(steps[:-1])), dict | list):
        steps.pop()
    return tuple(steps)


def find_value(data: Any, path: Path) -> Any:
    """Return the value at a path of a file, or None if there is no value."""
    for step in path:
        if isinstance(data, dict):
            data = data.get(step)
        elif isinstance(data, list) and isinstance(step, int) and step < len(data):
            data = data[step]
        else:
            return None
    return data


def _words_of_ours(detail: ErrorDetails, path: Path) -> str:
    words = str(detail.get("ctx", {}).get("error", detail["msg"]))
    return words if words.startswith(NOT_YET) else f"{path[-1]}: {words}"


def _explain_choice(path: Path, found: Any, detail: ErrorDetails) -> str:
    choices = [word.strip("'") for word in detail["ctx"]["expected"].replace(" or ", ", ").split(", ")]
    if not isinstance(found, str):
        return f"{_name(path)} needs {_list_words(choices)}, found {_describe(found)}"
    nearest = find_nearest(found, choices)
    hint = f"; did you mean '{nearest}'?" if nearest else ""
    return f"{path[-1]} is '{shorten(found)}'; expected {_list_words(choices)}{hint}"


def _explain_kind(path: Path, found: Any) -> Finding:
    """Explain a binding that is not a mapping, or has no kind, several kinds, or a kind of a later version."""
    name = shorten(str(path[-1]))
    if not isinstance(found, dict):
        words = (
            f"binding '{name}' is {_describe(found)}; expected a kind and its value, such as {{file: \"data/*.csv\"}}"
        )
        return path, False, words
    kinds = [key for key in found if key in BINDING_MODELS or key in NOT_YET_KINDS]
    if len(kinds) > 1:
        return (
            path,
            False,
            f"binding '{name}' has {len(kinds)} kinds ({', '.join(kinds)}); split it into one binding each",
        )
    if kinds:
        words = (
            f"{NOT_YET}: binding '{name}' is of kind '{kinds[0]}', which this version does not have; remove it for now"
        )
        return (*path, kinds[0]), True, words
    for key in found:
        if key not in BindingKeys.model_fields and (nearest := find_nearest(key, BINDING_MODELS)):
            return (*path, key), True, f"unknown key '{shorten(key)}' in binding '{name}'; did you mean '{nearest}'?"
    return path, False, f"binding '{name}' has no kind; add one of {_list_words(list(BINDING_MODELS))}"


def _explain_unknown_key(path: Path, data: dict[str, Any], kind: FileKind) -> str:
    key, where = str(path[-1]), path[:-1]
    place, keys, not_yet = _keys_at(where, data, kind)
    shown = shorten(key)
    if key in not_yet:
        return f"{NOT_YET}: '{shown}' {place} is known, but this version cannot do it; remove it for now"
    if where[:1] == ("bindings",) and len(where) == 2 and (owners := _owners_of(key)):
        own = next(known for known in BINDING_MODELS if known in find_value(data, where))
        return (
            f"'{shown}' belongs to {_list_words(owners)} bindings, and binding '{where[1]}' is of kind {own}; remove it"
        )
    if nearest := find_nearest(key, keys):
        return f"unknown key '{shown}' {place}; did you mean '{nearest}'?"
    if len(path) == 1 and kind == "session" and key in RunKeys.model_fields:
        return f"unknown key '{shown}' {place}; it belongs under run"
    if where == ("run",) and key in SessionKeys.model_fields:
        return f"unknown key '{shown}' {place}; it is a key of the session: move it out of run"
    if len(path) == 1 and kind == "session" and key in BINDING_MODELS:
        return f"unknown key '{shown}' {place}; it belongs in a binding, such as bindings: {{source: {{{key}: …}}}}"
    return f"unknown key '{shown}' {place}; expected one of {', '.join(keys)}"


def _keys_at(where: Path, data: dict[str, Any], kind: FileKind) -> tuple[str, list[str], tuple[str, ...]]:
    """Return the place in words, the keys it has, and the keys of later versions."""
    if not where:
        not_yet = {"session": NOT_YET_SESSION, "agent": (), "daemon": NOT_YET_DAEMON}[kind]
        place = {"session": "in this session", "agent": "in this agent", "daemon": "in wakeful.yaml"}[kind]
        return place, list(MODELS[kind].model_fields), not_yet
    if where[0] == "bindings" and len(where) == 2:
        found = find_value(data, where)
        model: type[BindingKeys] = next(BINDING_MODELS[known] for known in BINDING_MODELS if known in found)
        return f"in binding '{shorten(str(where[1]))}'", list(model.model_fields), NOT_YET_OPTIONS
    if where == ("run",):
        return "in run", list(RunKeys.model_fields), ()
    inner: list[type[Keys]] = [MODELS[kind]]
    for step in where:
        fields = [model.model_fields[str(step)] for model in inner if str(step) in model.model_fields]
        # An index, or a name that the author chose, leads to the value type of the key before it.
        inner = [model for field in fields for model in _models_within(field)] or inner
    place = next(step for step in reversed(where) if isinstance(step, str))
    return f"in {place}", [field.alias or key for model in inner for key, field in model.model_fields.items()], ()


def _models_within(annotation: Any) -> list[type[Keys]]:
    """Find the models in a type, also inside unions, lists and mappings, and inside pydantic's form of `Annotated`."""
    if isinstance(annotation, FieldInfo):
        annotation = annotation.annotation
    if isinstance(annotation, type) and issubclass(annotation, Keys):
        return [annotation]
    return [model for part in getattr(annotation, "__args__", ()) for model in _models_within(part)]


def _owners_of(option: str) -> list[str]:
    """List the kinds that have this option. Empty if every kind has it."""
    owners = [kind for kind, model in BINDING_MODELS.items() if option in model.model_fields and option != kind]
    return owners if len(owners) < len(BINDING_MODELS) else []


def find_nearest(word: str, choices: Iterable[str]) -> str | None:
    """Return the most similar choice, or None if no choice is similar."""
    if len(word) > 40:
        return None
    allowed = max(1, min(3, len(word) // 3))
    scored = [(_distance(word.lower().replace("-", "_"), choice), choice) for choice in choices]
    best = min(scored, default=(99, ""), key=lambda pair: pair[0])
    return best[1] if best[0] <= allowed else None


def _distance(one: str, other: str) -> int:
    """Count the edits between two words. A swap of neighbours counts once (`brnach`)."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, left in enumerate(one, 1):
        older, before, row = before, row, [i]
        for j, right in enumerate(other, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (left != right))
            if i > 1 and j > 1 and left == other[j - 2] and one[i - 2] == right:
                cost = min(cost, older[j - 2] + 1)
            row.append(cost)
    return row[-1]


def _list_words(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _name(path: Path) -> str:
    return f"'{shorten(str(path[-1]))}'" if path else "the file"


def _describe(found: Any) -> str:
    match found:
        case str():
            return f"'{shorten(found)}'"
        case list() | tuple():
            return "a list"
        case dict():
            return "keys and values"
        case _:
            return "nothing"


SERVER_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_MCP_TOOL = re.compile(rf"{MCP_TOOL_PREFIX}({SERVER_NAME.pattern})(/[A-Za-z0-9_.-]{{1,128}})?")


def find_tool_problem(name: str) -> str | None:
    """Explain why no tool can have this name. None if a tool can."""
    if name in TOOLS or _MCP_TOOL.fullmatch(name):
        return None
    if name.startswith(MCP_TOOL_PREFIX):
        return f"'{shorten(name)}' names no tool of a server; write mcp:SERVER for all of them, or mcp:SERVER/TOOL"
    nearest = find_nearest(name, TOOLS)
    advice = f"did you mean '{nearest}'?" if nearest else f"expected one of {', '.join(TOOLS)}, or mcp:SERVER"
    return f"there is no tool '{shorten(name)}'; {advice}"


def find_server(name: str) -> str | None:
    """Return the MCP server of a tool's name. None for tools of our own."""
    found = _MCP_TOOL.fullmatch(name)
    return found[1] if found is not None else None
