"""The text of a record: its values, and the keys of some maps, because people choose these keys."""

import re
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from msgspec import Struct
from msgspec.structs import fields

from wakeful.core.record import events
from wakeful.core.record.erased_payloads import ERASABLE, ERASED, find_words, list_values, redact
from wakeful.errors import CallerError

# Kinds with a text that no person, run or spec chose: the daemon writes it.
WRITTEN_BY_THE_DAEMON = {
    "outputs_landed", "outputs_staged", "session_reopened", "session_resumed", "session_suspended", "slot_skipped",
    "turn_requested",
}  # fmt: skip
# `redact` erases a part of these, if a person wrote it.
ERASED_IN_PART = {"wake_requested", "wake_extended", "wake_withdrawn", "run_started"}


def list_texts(kind: Any, known: tuple[Any, ...] = ()) -> Iterator[str]:
    """Yield the names of the text fields of a type, also those of nested values."""
    if not (isinstance(kind, type) and issubclass(kind, Struct)):
        for part in get_args(kind):
            yield from list_texts(part, known)
    elif kind not in known:
        for one in fields(kind):
            if str in (one.type, *get_args(one.type)):
                yield one.name
            yield from list_texts(one.type, (*known, kind))


def test_every_kind_with_words_of_people_can_be_erased() -> None:
    kinds = {re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower(): kind for kind in get_args(events.Event)}
    with_words = {
        name for name, kind in kinds.items() if {"words", "reason", "note", "rationale", "text"} & {*list_texts(kind)}
    }
    assert with_words - set(ERASABLE) == WRITTEN_BY_THE_DAEMON | ERASED_IN_PART


@pytest.mark.parametrize("kind", ["wake_requested", "wake_extended", "run_started"])
def test_the_note_of_an_activation_is_erased_from_the_causes(kind: str) -> None:
    """The texts of other causes are the daemon's own, and stay."""
    first = {"binding": "first", "kind": "first", "reason": "first sight"}
    noted = {"binding": "activation", "kind": "activation", "reason": "a secret note"}
    left = redact(kind, {"causes": [first, noted], "wake": 2})
    assert left == {"causes": [first, noted | {"reason": ERASED}], "wake": 2}
    with pytest.raises(CallerError, match="nothing to erase"):
        redact(kind, {"causes": [first, {"binding": "activation", "kind": "activation", "reason": None}], "wake": 2})


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        ("session_braked", {"words": "a secret reason"}),
        ("run_stop_requested", {"run": 3, "why": "interrupt", "reason": "a secret reason"}),
        ("session_thawed", {"move": "m", "reason": "a secret reason"}),
    ],
)
def test_the_reason_of_a_person_is_erased(kind: str, payload: dict[str, Any]) -> None:
    left = redact(kind, payload)
    assert "a secret reason" in find_words(payload) and "a secret reason" not in list_values(left)
    assert {name: value for name, value in left.items() if value != ERASED}.items() <= payload.items()


def test_names_of_fields_say_nothing_and_values_do() -> None:
    """Numbers count as text. True, false and null do not."""
    payload = {
        "outcome": "failed",
        "is_final": True,
        "reason": None,
        "exit_code": 3,
        "usage": {"usd": 0.5},
        "touched": ["a.csv", "b.csv"],
    }
    assert list(list_values(payload)) == ["failed", "3", "0.5", "a.csv", "b.csv"]


def test_keys_that_people_chose_are_values() -> None:
    """These are paths and names of people and facts. The identity of a binding is not one of them."""
    payload = {"wrote": {"out/a.csv": "d1"}, "people": {"ana": "maintainer"}, "versions": {"file in.txt content": "d2"}}
    assert list(list_values(payload)) == ["out/a.csv", "d1", "ana", "maintainer", "d2"]


def test_json_inside_a_text_is_read_and_broken_json_is_text() -> None:
    """Deeply nested JSON is treated as text."""
    assert list(list_values({"arguments": '{"path": "a.md", "lines": [1, 2]}'})) == ["a.md", "1", "2"]
    assert list(list_values({"text": "{not json}"})) == ["{not json}"]
    assert list(list_values({"text": '"quoted"'})) == ['"quoted"']
    deep = "[" * 50_000 + "]" * 50_000
    assert list(list_values({"text": deep})) == [deep]
