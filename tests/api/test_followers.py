"""Followers share pages read from the log and encoded lines. Each gets what it would get alone."""

import asyncio
import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from api.conftest import Speaker
from api.event_reader import read_event
from api.small_daemon import RunningDaemon, SmallDaemon, declare, reads
from api.test_streams import open_stream
from wakeful.api.event_stream import SENT_AT_ONCE, SendTurns
from wakeful.api.operations.follow import RecordPages, follow_records, read_placed
from wakeful.core.record.events import NoteAdded
from wakeful.eventlog.codec import encode
from wakeful.eventlog.contract import Append, Draft

NAMES = ("hr/payroll", "ops/backup")
NOTES = 40


def test_followers_of_every_form_get_what_the_log_has(daemon: RunningDaemon, speaker: Speaker) -> None:
    """Lines and events, with and without words, of one session and of all, are followed at the same time."""
    for name in NAMES:
        daemon.do(lambda small, name=name: small.declare(declare(name, reads("input", f"{name}.csv"))))
    position = speaker.get("/sessions").headers["wakeful-position"]
    queries = [f"after={position}{words}{name}" for words in ("", "&words=true") for name in ("", f"&name={NAMES[0]}")]
    streams = [speaker.stream(f"/follow?{query}")[1] for query in queries]
    events = [open_stream(daemon, f"/follow?{query}") for query in queries]
    for number in range(NOTES):
        assert speaker.call("note", name=NAMES[number % 2], text=f"note {number}").status == 200
    logged = [
        {"session": name, **line}
        for name in NAMES
        for line in speaker.get(f"/sessions/{name.replace('/', '%2F')}/log").lines
        if line["kind"] == "note_added"
    ]
    logged.sort(key=lambda line: int(line["payload"]["text"].split()[1]))
    for query, stream, event in zip(queries, streams, events, strict=True):
        wanted = [line for line in logged if "name=" not in query or line["session"] == NAMES[0]]
        as_lines = [json.loads(stream.readline()) for _ in wanted]
        as_events = [read_event(event).data for _ in wanted]
        assert as_lines == as_events
        words = [line.pop("words", None) for line in as_lines]
        assert as_lines == wanted
        assert all(words) == ("words=true" in query)


def append_note(small: SmallDaemon, text: str) -> None:
    """Append a record at once, without yielding to the loop and without waking a listener."""
    session_id = small.core.state.by_name(NAMES[0]).id
    draft = Draft(*encode(NoteAdded(text=text)), author="person:ana")
    small.log.append_blocking([Append(session_id, small.log.head(session_id).seq, (draft,))], time.time_ns() // 1000)


async def start_daemon(folder: Path) -> SmallDaemon:
    small = SmallDaemon(folder)
    await small.declare(declare(NAMES[0], reads("input", "a.csv")))
    return small


STEP = st.one_of(st.just("note"), st.just("round"), st.integers(0, 60))


@settings(max_examples=100, deadline=None)
@given(st.lists(STEP, max_size=60))
def test_a_shared_page_is_what_a_read_of_ones_own_gives(tmp_path_factory: Any, steps: list[Any]) -> None:
    """A shared page equals a direct read of the log, also when records are added within one round of the loop."""

    async def live(folder: Path) -> None:
        small = await start_daemon(folder)
        pages = RecordPages(small)
        for step in steps:
            if step == "note":
                append_note(small, "x" * 3000)
            elif step == "round":
                await asyncio.sleep(0)
            else:
                reached, records = read_placed(small.log, step)
                page = pages.read(step)
                assert [(line.position, line.record) for line in page.lines] == records
                assert page.reached == reached and page.has_more == (reached < small.log.position())

    asyncio.run(live(tmp_path_factory.mktemp("daemon")))


def test_a_record_between_two_followers_of_one_round_reaches_both(tmp_path: Path) -> None:
    """One follower reads before the record and the other after it. Both were woken earlier, and no new signal comes."""

    async def live() -> None:
        small = await start_daemon(tmp_path)
        pages, listeners = RecordPages(small), set[asyncio.Event]()
        got: list[list[str]] = [[], []]
        signals: list[asyncio.Event] = []

        async def follow(own: list[str]) -> None:
            async for lines in follow_records(small, pages, listeners, None, is_live=False):
                own += [json.loads(line.record.payload)["text"] for line in lines]

        following = []
        for own in got:
            following.append(asyncio.create_task(follow(own)))
            await asyncio.sleep(0)
            signals += listeners - set(signals)
        append_note(small, "first")
        signals[0].set()
        # This runs in the same round of the loop, between the first follower's turn and the second's.
        asyncio.get_running_loop().call_soon(lambda: (append_note(small, "second"), signals[0].set()))
        signals[1].set()
        async with asyncio.timeout(60):
            while got != [["first", "second"]] * 2:
                await asyncio.sleep(0)
        for one in following:
            one.cancel()
            with suppress(asyncio.CancelledError):
                await one

    asyncio.run(live())


def test_few_streams_send_in_one_round_of_the_loop() -> None:
    """A saved file waits for a few of a hundred streams only, and every stream gets its turn."""

    async def live() -> list[int]:
        turns, sent, rounds = SendTurns(), 0, []

        async def send() -> None:
            nonlocal sent
            await turns.take()
            sent += 1

        sending = [asyncio.create_task(send()) for _ in range(100)]
        while sent < len(sending):
            before = sent
            await asyncio.sleep(0)
            rounds.append(sent - before)
        return rounds

    rounds = asyncio.run(live())
    assert sum(rounds) == 100 and max(rounds) <= SENT_AT_ONCE
