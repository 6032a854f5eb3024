"""The lifecycle of a session: every state has a stage, and only the table leads from one stage to another."""

import subprocess
import sys
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from msgspec.structs import replace

from core.random_history import live_through
from core.simulated_world import check_transition
from golden import golden_log
from wakeful.core.record import events as ev
from wakeful.core.record import lifecycle_stages as stages
from wakeful.core.record.flat_state import decode_flat, flatten
from wakeful.core.record.state import Archived, Declaration, Departed, Moving, OpenRun, OpenWake, Session, Terminated
from wakeful.core.spec.session import SessionSpec
from wakeful.eventlog.codec import KINDS

SPEC = SessionSpec(name="s", root="/", objective="x")
AT_REST = Session(id="1", name="s", opened_at=0, spec=SPEC, declaration=Declaration(is_declared=True))
WAKE = OpenWake(wake=1, requested_at=0, causes=())
RUN = OpenRun(run=1, run_id="r", wake=1, attempt=0, incarnation="i", started_at=0, versions={}, causes=(), spec=SPEC)
HOLD = ev.Hold(kind="failed", words="failed")
CLOSED = Terminated()

STAGES: dict[str, tuple[Session, stages.Stage, str]] = {
    "at rest": (AT_REST, stages.Suspended(None), "suspended"),
    "queued": (replace(AT_REST, wake=WAKE), stages.Suspended(WAKE), "suspended"),
    "running, and held after that": (replace(AT_REST, run=RUN, hold=HOLD), stages.Running(RUN), "running"),
    "held": (replace(AT_REST, hold=HOLD), stages.Sleeping("failed", HOLD), "sleeping"),
    "braked before all else": (replace(AT_REST, hold=HOLD, brake="stop"), stages.Sleeping("brake"), "sleeping"),
    "without a spec": (replace(AT_REST, declaration=Declaration()), stages.Sleeping("undeclared"), "sleeping"),
    "backing off": (
        replace(AT_REST, wake=replace(WAKE, retry_at=5)),
        stages.Sleeping("backing off"),
        "sleeping",
    ),
    "on its way": (replace(AT_REST, closed=Moving("m", "host")), Moving("m", "host"), "sleeping"),
    "gone": (replace(AT_REST, closed=Departed("m")), Departed("m"), "sleeping"),
    "closed there": (replace(AT_REST, closed=Departed(before=CLOSED)), Departed(before=CLOSED), "terminated"),
    "closed": (replace(AT_REST, closed=CLOSED), CLOSED, "terminated"),
    "put away": (replace(AT_REST, closed=Archived("b", CLOSED)), Archived("b", CLOSED), "archived"),
}


@pytest.mark.parametrize(("session", "stage", "state"), STAGES.values(), ids=STAGES.keys())
def test_every_state_has_one_stage(session: Session, stage: stages.Stage, state: str) -> None:
    """A stage carries only its own fields."""
    assert stages.find_stage(session) == stage
    assert stages.name_state(session, is_held=isinstance(stage, stages.Sleeping)) == state
    assert isinstance(stage, stages.Closed) == session.is_shut


@pytest.mark.parametrize("session", [session for session, _, _ in STAGES.values()], ids=STAGES.keys())
def test_every_stage_survives_its_encoding(session: Session) -> None:
    """A snapshot stores flags instead of the variants of `closed`."""
    assert decode_flat(msgspec.json.encode(flatten(session))) == session


@pytest.mark.parametrize(
    ("flags", "closed"),
    [
        ({"move": "m", "moving_to": "host"}, Moving("m", "host")),
        ({"has_departed": True}, Departed()),
        ({"move": "m", "has_departed": True, "is_terminated": True}, Departed("m", before=CLOSED)),
        ({"archive": "b"}, Archived("b")),
        ({"archive": "b", "has_departed": True, "is_terminated": True}, Archived("b", Departed(before=CLOSED))),
    ],
)
def test_the_flags_on_disk_are_one_variant(flags: dict[str, object], closed: stages.Closed) -> None:
    """The names on disk come from the time when a session had separate flags."""
    found = decode_flat(msgspec.json.encode({"id": "1", "name": "s", "opened_at": 0, **flags}))
    assert found.closed == closed
    assert flags.items() <= flatten(found).items()


def test_the_table_names_every_stage() -> None:
    """Every stage is a source and a target of some transition."""
    assert {one for row in stages.TRANSITIONS for one in row.sources} == set(get_args(stages.StageWord))
    assert {one for row in stages.TRANSITIONS for one in row.targets} == set(get_args(stages.StageWord))


@pytest.mark.parametrize("seed", range(500, 540))
def test_no_history_leaves_the_table(seed: int) -> None:
    """Random histories: folding their log checks every transition."""
    live_through(seed).world.fold_log()


@pytest.mark.parametrize("release", golden_log.releases(), ids=lambda path: path.name)
def test_golden_logs_hold_every_event_and_stay_within_the_table(release: Path) -> None:
    """Golden logs also have the events that are rare in random histories: moves and archives."""
    before: dict[str, Session] = {}
    types = {kind: event for event, kind in KINDS.items()}
    for record, after in golden_log.fold_all(golden_log.read_records(release)):
        check_transition(before.get(record.session), types[record.kind], after)
        before[record.session] = after


def test_an_event_that_the_table_does_not_name_is_refused() -> None:
    """Test the check itself: a terminated session cannot be resumed."""
    assert not stages.is_allowed(ev.SessionResumed, "terminated", "running")
    with pytest.raises(AssertionError, match="SessionResumed led from terminated to suspended"):
        check_transition(replace(AT_REST, closed=CLOSED), ev.SessionResumed, AT_REST)


def test_the_page_shows_the_table_as_it_is() -> None:
    """`make docs` writes the page."""
    script = Path(__file__).parents[2] / "scripts" / "write_lifecycle_page.py"
    assert subprocess.run([sys.executable, script, "--check"], check=False).returncode == 0
