"""Slices of a log over the wire: relative times, known kinds, positions, and limits."""

import pytest

from api.conftest import Speaker
from api.small_daemon import RunningDaemon, declare, reads
from wakeful.core.calls.call_types import Note


@pytest.fixture
def noted(daemon: RunningDaemon) -> RunningDaemon:
    daemon.do(lambda d: d.declare(declare("payroll", reads("salaries", "salaries.csv"))))
    daemon.do(lambda d: d.finish("payroll"))
    for author in ("person:ada", "person:bob"):
        daemon.do(
            lambda d, author=author: d.call(
                Note(name="payroll", text=f"by {author}"), author=author, key=None, run=None
            )
        )
    return daemon


def test_times_may_be_said_as_how_long_ago(noted: RunningDaemon, speaker: Speaker) -> None:
    """`since=2h` and `until=2h` split the same log in two."""
    every = speaker.get("/sessions/payroll/log").lines
    assert speaker.get("/sessions/payroll/log?since=2h").lines == every
    assert speaker.get("/sessions/payroll/log?until=2h").lines == []


def test_kinds_run_and_author_are_combined(noted: RunningDaemon, speaker: Speaker) -> None:
    """All bounds apply together. The newest N are counted after them."""
    of_ada = speaker.get("/sessions/payroll/log?kind=note_added&kind=run_finished&author=person:ada").lines
    assert [line["payload"]["text"] for line in of_ada] == ["by person:ada"]
    newest = speaker.get("/sessions/payroll/log?kind=note_added&kind=run_finished&last=2").lines
    assert [line["author"] for line in newest] == ["person:ada", "person:bob"]
    assert [line["kind"] for line in speaker.get("/sessions/payroll/log?run=1&kind=run_finished").lines] == [
        "run_finished"
    ]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("run_finish", "did you mean 'run_finished'?"),
        ("RunStarted", "did you mean 'run_started'?"),
        ("", "expected one of"),
        ("run_finished,note_added", "no kind"),
    ],
)
def test_a_kind_no_record_can_have_is_refused_with_the_nearest(
    noted: RunningDaemon, speaker: Speaker, kind: str, words: str
) -> None:
    """A misspelt kind is an error, not an empty log."""
    reply = speaker.get(f"/sessions/payroll/log?kind={kind}")
    assert reply.status == 400 and words in reply.error


@pytest.mark.parametrize("at", ["0", "99999", "9" * 30, "march", "1999-01-01T00:00:00Z", "9000d", ""])
def test_a_position_that_is_none_is_refused_in_words(noted: RunningDaemon, speaker: Speaker, at: str) -> None:
    """A position that the log does not have gives an error, not an invented state."""
    reply = speaker.get(f"/sessions/payroll?at={at}")
    assert reply.status == 400 and ("payroll" in reply.error or "RFC 3339" in reply.error)


def test_the_past_is_found_by_seq_and_by_time(noted: RunningDaemon, speaker: Speaker) -> None:
    """A time means the newest record at that time."""
    lines = speaker.get("/sessions/payroll/log").lines
    note = next(line for line in lines if line["author"] == "person:ada")
    by_seq = speaker.get(f"/sessions/payroll?at={note['seq']}").json
    assert by_seq["seq"] == note["seq"] and by_seq["handoff"] == "by person:ada"
    assert speaker.get(f"/sessions/payroll?at={note['at']}").json == by_seq
    assert speaker.get("/sessions/payroll?at=0s").json["seq"] == lines[-1]["seq"]


def test_the_newest_are_answered_up_to_a_limit_that_the_refusal_names(noted: RunningDaemon, speaker: Speaker) -> None:
    """One answer must fit in memory. The error suggests a range, which is streamed."""
    assert len(speaker.get("/sessions/payroll/log?last=10000").lines) == len(speaker.get("/sessions/payroll/log").lines)
    refused = speaker.get("/sessions/payroll/log?last=10001")
    assert refused.status == 400
    assert "at most 10000" in refused.error and "from, to" in refused.error
