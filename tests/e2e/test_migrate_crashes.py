"""The daemon is killed in the middle of a move.

The session stays where it was, no other session takes its place, and the same command completes the move. The tests
make the state after a kill with the code of a move itself, stopped at the point of the kill.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from e2e.box import Box
from e2e.test_migrate import hashes, move, start_counting
from wakeful.bundles.load import load
from wakeful.eventlog.contract import EventLog
from wakeful.eventlog.sqlite import open_log
from wakeful.system.blobs import Blobs


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Box]:
    made = Box(tmp_path / "there")
    yield made
    made.close()


@contextmanager
def killed(box: Box) -> Iterator[EventLog]:
    """Kill the daemon with -9 and yield its log. Start the daemon again at the end."""
    box.kill()
    log = open_log(box.state)
    try:
        yield log
    finally:
        log.close()
    box.start()


def take_in(box: Box, log: EventLog, bundle: Path) -> None:
    """Do all that comes before the record of the arrival."""
    load(
        log,
        Blobs(box.state / "blobs"),
        bundle,
        extend=True,
        is_moved=True,
        scratch=box.state / "scratch" / ".loading-0",
    )


def find_notes(box: Box, session_id: str) -> list[str]:
    return (box.state / "scratch" / session_id / "notes").read_text().splitlines()


def test_a_target_killed_before_the_record_of_the_arrival_takes_the_session_again(box: Box, there: Box) -> None:
    """Its scratch files come, too.

    Until then the session of the same name goes on there, alone and unchanged. There is nothing to give up there.
    """
    start_counting(box)
    start_counting(there)
    session_id, namesake = box.row("count")["id"], there.row("count")["id"]
    box.ask("migrate", "count", "--to", "away.bundle")
    with killed(there) as log:
        take_in(there, log, box.folder / "away.bundle")
    assert [(row["name"], row["id"]) for row in there.rows()] == [("count", namesake)]
    assert not list((there.state / "scratch").glob(".*"))
    assert f"session {session_id} was loaded to record" in there.words("doctor")
    assert "nothing to give up" in there.words("migrate", "count", "--give-up")
    there.write("in.txt", "1\n2\n")
    there.wait_at_rest("count", runs=2)
    move(box, there)
    assert there.row("count")["id"] == session_id and there.row("count-before")["id"] == namesake
    assert len(find_notes(there, session_id)) == 1
    assert hashes(box) == hashes(there)[: len(hashes(box))]


@pytest.mark.long
def test_a_home_killed_while_the_session_comes_back_keeps_its_record(box: Box, there: Box) -> None:
    """It keeps its name: the spec at home declares no second session. Its text can still be searched."""
    start_counting(box)
    box.ask("note", "count", "the zebra was counted")
    start_counting(there)
    session_id = box.row("count")["id"]
    move(box, there)
    there.ask("resume", "count")
    there.write("in.txt", "1\n2\n")
    there.wait_at_rest("count", runs=2)
    there.ask("migrate", "count", "--to", "home.bundle")
    with killed(box) as log:
        take_in(box, log, there.folder / "home.bundle")
    assert [row["id"] for row in box.rows()] == [session_id]
    assert "moved to another host" in box.row("count")["reason"]
    assert "zebra" in box.ask("search", "zebra")
    move(there, box)
    assert box.row("count")["id"] == session_id and len(box.rows()) == 1
    assert len(find_notes(box, session_id)) == 2
    assert hashes(there) == hashes(box)[: len(hashes(there))]
    assert "sound" in box.words("verify")


def test_a_move_that_was_given_up_half_way_can_be_begun_again(box: Box, there: Box) -> None:
    """The second bundle is longer than the first one, whose records lie there unfinished."""
    start_counting(box)
    start_counting(there)
    session_id = box.row("count")["id"]
    box.ask("migrate", "count", "--to", "away.bundle")
    with killed(there) as log:
        take_in(there, log, box.folder / "away.bundle")
    box.ask("migrate", "count", "--give-up")
    box.ask("remember", "count", "month", "March")
    move(box, there)
    assert there.row("count")["id"] == session_id
    assert [fact["value"] for fact in there.json("facts", "count")] == ["March"]
    assert "sound" in there.words("verify")
