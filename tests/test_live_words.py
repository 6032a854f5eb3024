"""Words of an answer in progress, in memory: bounded, redacted wherever they are cut, and dropped when void or late."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from agents.test_daemon_client import say as answer
from agents.test_daemon_client import scripted
from wait_conditions import eventually_async
from wakeful.agents.live_text import MOST_HELD, LiveTextStream
from wakeful.api.live_answers import LiveWords, Said
from wakeful.cli.agent_text import BROKE_OFF, AgentWordsPrinter, LineWrapper
from wakeful.client.async_client import DaemonClient
from wakeful.secrets.redact import Redactor

VALUE = "sk-canary-Grüße-0001"


def say(text: str, *, turn: int = 1, attempt: int = 1, kind: str = "text") -> Said:
    return Said(turn=turn, attempt=attempt, kind=kind, text=text)  # type: ignore[arg-type]


def read(words: LiveWords, position: int = 0) -> str:
    return "".join(piece.said.text for piece in words.read_after(position)[1])


def test_a_secret_passes_in_no_pieces_whatsoever() -> None:
    """The secret is cut at every place, and letter by letter.
    Text that only resembles its beginning is held for the next words."""
    text = f"It is {VALUE}, and sk-can is none."
    redactor = Redactor([("gh", VALUE.encode())])
    cuts = [[text[:place], text[place:]] for place in range(len(text))] + [list(text)]
    for pieces in cuts:
        words = LiveWords(lambda: redactor)
        for piece in pieces:
            words.add("s", 1, [say(piece)])
        assert read(words) == "It is [secret gh], and sk-can is none.", pieces


def test_a_secret_that_becomes_known_in_the_middle_is_found() -> None:
    known = [Redactor()]
    words = LiveWords(lambda: known[0])
    words.add("s", 1, [say("It is ")])
    known[0] = Redactor([("gh", VALUE.encode())])
    words.add("s", 1, [say(VALUE[:6]), say(VALUE[6:]), say(".")])
    assert read(words) == "It is [secret gh]."


def test_a_follower_that_is_too_slow_is_told_and_nothing_more_than_the_bound_is_held() -> None:
    words = LiveWords(Redactor, most_bytes=100)
    position = words.position
    for number in range(50):
        words.add("s", 1, [say(f"word {number:03} ")])
    after, pieces, is_lost = words.read_after(position)
    assert is_lost and len(pieces) == 11 and pieces[-1].said.text == "word 049 "
    assert words.read_after(after) == (after, [], False)
    assert len(words.read_after(after - 11, 20)[1]) == 2, "no more at once than was asked for"


def test_words_of_an_earlier_attempt_are_void_and_those_of_a_recorded_turn_late() -> None:
    """A follower that joins during a turn gets all of the present attempt. After the turn it gets nothing."""
    words = LiveWords(Redactor)
    words.add("s", 1, [say("half", attempt=1), say("who", attempt=2), say("le", attempt=2)])
    assert read(words, words.position) == "whole"
    words.close_turn("s", 1, 1)
    words.add("s", 1, [say(" late", attempt=2)])
    assert read(words) == ""
    words.add("s", 1, [say("next", turn=2, attempt=3)])
    assert read(words, words.position) == "next"


@pytest.mark.asyncio
async def test_a_daemon_that_answers_nothing_costs_a_bound_of_memory_and_no_waiting(tmp_path: Path) -> None:
    """The server accepts the connection and is silent.
    Words beyond the bound are dropped, the next post reports the loss, and the model does not wait."""
    path, is_awake = tmp_path / "d.sock", asyncio.Event()

    async def hang(_: bytes, writer: asyncio.StreamWriter) -> None:
        await is_awake.wait()
        await answer(writer, b"{}")

    written: list[str] = []
    async with scripted(path, hang) as asked, DaemonClient(str(path)) as link:
        voice = LiveTextStream(link, written.append)
        hear = voice.begin(1)
        hear("first")
        await eventually_async(lambda: asked)
        for _ in range(100):
            hear("x" * 4096)
            hear("y" * 10, "thinking")
        assert len("".join(written)) == 5 + 100 * 4096 and len(asked) == 1
        is_awake.set()
        await eventually_async(lambda: len(asked) == 2)
        voice.close()
    assert b'"text":"first"' in asked[0]
    held = json.loads(asked[1].partition(b"\r\n\r\n")[2])["words"]
    assert 0 < sum(len(one["text"]) for one in held) <= MOST_HELD and any(one["kind"] == "lost" for one in held)


@pytest.mark.asyncio
async def test_of_an_answer_that_is_complete_at_once_only_thoughts_are_posted(tmp_path: Path) -> None:
    """The record of the turn has the text and the calls, but no thoughts. Later answers are posted as usual."""

    async def take(_: bytes, writer: asyncio.StreamWriter) -> None:
        await answer(writer, b"{}")

    path = tmp_path / "d.sock"
    async with scripted(path, take) as asked, DaemonClient(str(path)) as link:
        voice = LiveTextStream(link, lambda _: None)
        hear = voice.begin(1)
        hear("read", "call")
        hear("Read it.")
        await voice.settle()
        voice.begin(2)("Hm.", "thinking")
        await voice.settle()
        assert len(asked) == 1 and b"Hm." in asked[0]
        voice.begin(3)("Slowly")
        await eventually_async(lambda: len(asked) == 2)
        voice.close()
    assert b"Slowly" in asked[1] and b"Read it." not in b"".join(asked)


def test_an_answer_that_broke_off_is_told_although_no_word_of_the_next_one_was_in_flight() -> None:
    out: list[str] = []
    speech = AgentWordsPrinter(LineWrapper(out.append), None, lambda words: out.append(f"[{words}]\n"))
    speech.take({"turn": 1, "attempt": 1, "kind": "text", "text": "one two"})
    speech.conclude(1, "All of it.")
    assert "".join(out) == f"one two\n[{BROKE_OFF}]\nAll of it.\n"


@pytest.mark.parametrize("width", [None, 20])
def test_text_in_pieces_is_text_in_lines(width: int | None) -> None:
    for cut in range(1, 8):
        out: list[str] = []
        flow = LineWrapper(out.append, lead="| ", width=width)
        text = "\n\nSome words, \x1b[31mnot obeyed\n\nand a-very-long-word-that-fits-nowhere\n\n"
        for start in range(0, len(text), cut):
            flow.put(text[start : start + cut])
        flow.end()
        lines = "".join(out).split("\n")
        assert lines[-1] == "" and all(line.startswith("|") for line in lines[:-1]) and "\x1b" not in "".join(out)
        if width is None:
            assert lines[:-1] == ["| Some words, \\x1b[31mnot obeyed", "| ", "| and a-very-long-word-that-fits-nowhere"]
        else:
            assert all(len(line) <= width for line in lines)
            assert (
                "".join(line[2:] for line in lines).replace(" ", "")
                == "Somewords,\\x1b[31mnotobeyedanda-very-long-word-that-fits-nowhere"
            )
