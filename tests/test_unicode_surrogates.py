"""Text with lone surrogates is converted so that every provider, log and terminal accepts it. The reader is told."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeful.agents.summary import SUMMARISE, Summary, read_answer
from wakeful.core.agents.turns import Answered, ToolCall
from wakeful.text.unicode import SendablePieces, find_lone_half, make_json_sendable, make_sendable, tell_sendable

# Lone surrogates are rare among all characters, so half of these texts are made of them.
HALVES = st.text(st.sampled_from('a\\\n"é\U0001f600\ud83d\ude00\udce9\ud800'))
TEXTS = HALVES | st.text()


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("plain é 😀", "plain é 😀"),
        ("a \ud83d\ude00", "a 😀"),
        ("a \ud83d b", "a \\ud83d b"),
        ("caf\udce9", "caf\\udce9"),
        ("\ude00\ud83d", "\\ude00\\ud83d"),
        ("", ""),
    ],
)
def test_halves_that_belong_together_are_joined_and_others_are_escapes(text: str, sent: str) -> None:
    """Surrogates that form a pair are joined, others become escapes. Text without surrogates stays as it is."""
    assert make_sendable(text) == sent


@given(TEXTS)
def test_all_text_can_be_sent(text: str) -> None:
    """The result is valid UTF-8, a second conversion changes nothing, and the reader is told of a lone surrogate."""
    sent = make_sendable(text)
    sent.encode()
    assert make_sendable(sent) == sent
    assert tell_sendable(text).startswith(sent) and (tell_sendable(text) != sent) == (
        sent != text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    )


@given(HALVES, st.lists(st.integers(0, 20)))
def test_text_in_pieces_comes_to_the_same_as_the_whole(text: str, places: list[int]) -> None:
    """A character that was cut into two pieces is whole again, wherever it was cut."""
    cuts = [0, *sorted(place for place in places if place <= len(text)), len(text)]
    pieces = SendablePieces()
    told = [pieces.take(text[start:end]) for start, end in zip(cuts, cuts[1:], strict=False)]
    assert "".join((*told, pieces.end())) == make_sendable(text)


@given(
    st.recursive(
        TEXTS | st.integers() | st.none(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
        max_leaves=5,
    ),
    st.booleans(),
)
def test_arguments_can_be_read_and_sent_on_by_anybody(value: object, is_ascii: bool) -> None:
    """This holds for JSON with escapes and without.
    Arguments with a lone surrogate are detected before anything is done."""
    arguments = make_sendable(json.dumps({"value": value}, ensure_ascii=is_ascii))
    json.dumps(json.loads(make_json_sendable(arguments)), ensure_ascii=False).encode()
    is_whole = find_lone_half(arguments) is None
    try:
        json.dumps(json.loads(arguments), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        assert not is_whole
    else:
        assert is_whole and json.loads(make_json_sendable(arguments)) == json.loads(arguments)


def test_a_summary_with_half_a_character_is_one() -> None:
    """The summary was paid for and is useful, so it is converted and accepted."""
    call = ToolCall(id="s", name=SUMMARISE, arguments='{"summary": "done \\ud83d", "files": ["a\\ud83d\\ude00"]}')
    assert read_answer(Answered(model="m", calls=(call,))) == Summary(summary="done \\ud83d", files=("a\U0001f600",))
