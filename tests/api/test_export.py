"""`export` over the wire: all records of all sessions in the order of recording, each with its whole envelope."""

from collections.abc import Iterator

import pytest

from api.conftest import Speaker
from api.small_daemon import RunningDaemon, SmallDaemon, declare, reads
from wakeful.core.calls.call_types import Note

FIELDS = [
    "session",
    "id",
    "seq",
    "at",
    "kind",
    "author",
    "run",
    "payload",
    "hash",
    "parent",
    "rationale",
    "payload_hash",
]


@pytest.fixture(scope="module")
def noted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    """Make two sessions whose records alternate. Exporting changes nothing, so all tests share them."""

    async def live(small: SmallDaemon) -> None:
        await small.declare(*(declare(name, reads("in", f"{name}.csv")) for name in ("a", "b")))
        for number in range(1200):
            await small.call(
                Note(name="ab"[number % 2], text=f"note {number}"), author="person:ada", key=None, run=None
            )

    with RunningDaemon(tmp_path_factory.mktemp("noted")) as running:
        running.do(live)
        yield running


@pytest.fixture
def speaker(noted: RunningDaemon) -> Speaker:
    return Speaker(noted.socket)


def test_all_sessions_are_exported_in_the_order_of_recording(noted: RunningDaemon, speaker: Speaker) -> None:
    """Over many pages, no record is missing, repeated or out of order."""
    lines = speaker.get("/export").lines
    assert all(list(line) == FIELDS for line in lines)
    notes = [line["payload"]["text"] for line in lines if line["kind"] == "note_added"]
    assert notes == [f"note {number}" for number in range(1200)]
    for name in "ab":
        own = [line for line in lines if line["session"] == name]
        assert [line["seq"] for line in own] == list(range(1, len(own) + 1))
        assert [line["hash"] for line in own] == [line["hash"] for line in speaker.get(f"/sessions/{name}/log").lines]


def test_sessions_kinds_and_times_are_chosen(noted: RunningDaemon, speaker: Speaker) -> None:
    """One session is read by its index and several by a scan. Both give the same lines."""
    both = speaker.get("/export").lines
    assert speaker.get("/export?name=a").lines == [line for line in both if line["session"] == "a"]
    assert speaker.get("/export?name=a&name=b").lines == both
    middle = both[700]["at"]
    since = speaker.get(f"/export?since={middle}").lines
    assert since == [line for line in both if line["at"] >= middle]
    assert speaker.get(f"/export?until={middle}&name=b").lines == [
        line for line in both if line["at"] <= middle and line["session"] == "b"
    ]
    assert {line["kind"] for line in speaker.get("/export?kind=run_started").lines} == {"run_started"}
    assert speaker.get("/export?until=1h").lines == []


@pytest.mark.parametrize(
    ("query", "words"),
    [("format=xml", "expected jsonl"), ("name=c", "no session"), ("kind=x", "no kind"), ("since=x", "RFC 3339")],
)
def test_what_cannot_be_exported_is_refused_before_the_first_line(
    noted: RunningDaemon, speaker: Speaker, query: str, words: str
) -> None:
    """A wrong bound is answered with an error, never with an empty file."""
    reply = speaker.get(f"/export?{query}")
    assert reply.status in (400, 404) and words in reply.error


def test_a_run_may_not_export(noted: RunningDaemon, speaker: Speaker) -> None:
    """The token of a run is limited to its own session."""
    assert speaker.get("/export", token=noted.small.give_token("a")).status == 403
