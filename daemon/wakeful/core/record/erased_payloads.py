"""The placeholder of an erased payload: the same record without the words of people.

Positions, counts, keys and outcomes stay, so a replay folds the placeholder to a state that differs only in these
words. This module alone lists the fields that hold words, for every kind that may be erased.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from wakeful.errors import CallerError

ERASED = "[erased]"
# The kinds of records that can be erased: they hold text of people, runs or specs. `redact` also takes the rationale
# of `wake_withdrawn`, and the notes of activations among the causes of a wake.
ERASABLE = (
    "activation_requested",
    "checkpoint_marked",
    "conflict_resolved",
    "conversation_compressed",
    "delivery_received",
    "fact_retracted",
    "fact_set",
    "memory_set",
    "message_added",
    "message_sent",
    "note_added",
    "notification_abandoned",
    "payload_erased",
    "prompt_assembled",
    "question_answered",
    "question_asked",
    "run_finished",
    "run_stop_requested",
    "session_archived",
    "session_braked",
    "session_merged",
    "session_opened",
    "session_rewound",
    "session_slept",
    "session_terminated",
    "session_thawed",
    "spec_declared",
    "subagent_halted",
    "todo_set",
    "tool_called",
    "tool_returned",
    "turn_answered",
    "turn_failed",
    "work_halted",
)
# The kinds with the causes of a wake. Of these, only the note that a person gave with an activation is erased.
_WITH_CAUSES = ("wake_requested", "wake_extended", "run_started")
_WORDS = frozenset(
    (
        "base",
        "handoff",
        "note",
        "objective",
        "ours",
        "rationale",
        "reason",
        "summary",
        "text",
        "theirs",
        "theirs_rationale",
        "value",
        "words",
    )
)
# The arguments of a call, as the model wrote them. Their placeholder must be JSON:
# a provider rejects a conversation with anything else.
_ARGUMENTS = "arguments"
NO_ARGUMENTS = "{}"
# A field with digests by path. It holds no words.
_DIGESTS = "wrote"
# Answers that are a plain decision, which is not erased.
_DECISIONS = ("yes", "y", "no", "n")
# Fields that are tables. Each value of the table holds words.
_TABLES = frozenset(("memory", "env"))
# Addresses of blobs, and `raw`, an answer as its provider sent it. A fold needs none of them, so they become null.
_ADDRESSES = frozenset(("head", "tail", "files", "raw", "payload"))
# Addresses of the texts that a model was given. These fields must hold an address, so they become an empty one.
_TOLD = frozenset(("instructions", "opening"))


def redact(kind: str, payload: dict[str, Any]) -> dict[str, Any]:
    """Return the placeholder of a payload of this kind. Raises CallerError if the payload holds no words."""
    # The decision and its author stay. Only the reason that the person gave is erased.
    if kind == "wake_withdrawn" and payload.get("rationale"):
        return {**payload, "rationale": ERASED}
    if kind in _WITH_CAUSES and any(_has_note(cause) for cause in payload["causes"]):
        causes = [cause | {"reason": ERASED} if _has_note(cause) else cause for cause in payload["causes"]]
        return payload | {"causes": causes}
    if kind not in ERASABLE:
        raise CallerError(f"a record of kind {kind} holds no words of anybody; there is nothing to erase")
    if kind == "question_answered" and str(payload.get("text")).strip().lower() in _DECISIONS:
        if payload.get("rationale"):
            return {**payload, "rationale": ERASED}
        raise CallerError("this record holds a yes or a no; there is nothing to erase")
    if kind == "prompt_assembled":
        return {name: "" if name in _TOLD and value is not None else value for name, value in payload.items()}
    return {name: _redact(name, value) for name, value in payload.items()}


def _has_note(cause: dict[str, Any]) -> bool:
    return cause["kind"] == "activation" and bool(cause.get("reason"))


def _redact(name: str, value: Any) -> Any:
    if name == _DIGESTS:
        return value
    if name == _ARGUMENTS and isinstance(value, str):
        return NO_ARGUMENTS
    if name in _WORDS and isinstance(value, str):
        # An empty text stays empty. Otherwise a merge without a summary would get one: `[erased]`.
        return ERASED if value else value
    if name in _TABLES and isinstance(value, dict):
        return dict.fromkeys(value, ERASED)
    if name in _ADDRESSES and isinstance(value, str):
        return None
    if isinstance(value, dict):
        return {key: _redact(key, one) for key, one in value.items()}
    if isinstance(value, list):
        return [_redact("", one) for one in value]
    return value


def find_addresses(kind: str, payload: dict[str, Any]) -> list[str]:
    """List the blobs that are deleted together with a record: the output of a run, the body of a delivery,
    the texts given to a model, the images that tools returned."""
    fields: tuple[str, ...]
    match kind:
        case "run_finished":
            named, fields = payload.get("output") or {}, ("head", "tail")
        case "delivery_received":
            named, fields = payload, ("payload",)
        case "prompt_assembled":
            named, fields = payload, tuple(sorted(_TOLD))
        case "tool_returned":
            return [one["address"] for one in payload.get("images") or () if one.get("address")]
        case _:
            return []
    return [address for name in fields if (address := named.get(name))]


def find_words(payload: Any) -> list[str]:
    """List the texts that an erasure removes, longest first. The caller searches for them in other places."""
    found: set[str] = set()
    _collect("", payload, found)
    return sorted(found, key=lambda text: (-len(text), text))


def _collect(name: str, value: Any, found: set[str]) -> None:
    match value:
        case _ if name == _DIGESTS:
            return
        case str() if name in _WORDS or (name == _ARGUMENTS and value != NO_ARGUMENTS):
            found.add(value)
        case dict():
            for key, one in value.items():
                _collect("value" if name in _TABLES else key, one, found)
        case list():
            for one in value:
                _collect("", one, found)


# Maps whose keys are words of people or paths. In other maps a key is the name of a field or the identity of a binding.
_NAMED_VALUES = frozenset({"env", "facts", "files", "memory", "people", "wrote"})
_DEEPEST = 8


def list_values(value: Any, depth: int = 0) -> Iterator[str]:
    """Yield every value as text, in order, also those inside strings of JSON. True, false and null are skipped."""
    match value:
        case str():
            inner = _open_json(value) if depth < _DEEPEST else None
            if inner is None:
                yield value
            else:
                yield from list_values(inner, depth + 1)
        case dict():
            for name, one in value.items():
                if name in _NAMED_VALUES and isinstance(one, dict):
                    yield from one
                yield from list_values(one, depth + 1)
        case list():
            for one in value:
                yield from list_values(one, depth + 1)
        case bool() | None:
            return
        case _:
            yield str(value)


def _open_json(text: str) -> dict[str, Any] | list[Any] | None:
    """Decode the object or list that a string holds as JSON. None for any other text."""
    if text[:1] not in "{[" or text[-1:] not in "}]":
        return None
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
    return found if isinstance(found, dict | list) else None
