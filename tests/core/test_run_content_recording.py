"""A run whose contents are being recorded is closed once they are, but it does not wait for ever."""

from __future__ import annotations

from msgspec.structs import replace

from core.simulated_world import World
from core.spec_builders import read, session, write
from wakeful.core.calls import call_types as calls
from wakeful.core.deciding.run_end import LONGEST_LAST_LOOK_SECONDS
from wakeful.core.record.observations import OutputsKept, ProcessEnded


def ending() -> tuple[World, ProcessEnded]:
    """Make a run under way, and the report of its end while its contents are being recorded."""
    world = World(session("s", read("in"), write("out")), files={"in": "1"})
    world.look()
    assert world.is_running("s")
    run = world.session("s").run
    return world, ProcessEnded(session=world.session("s").id, run_id=run.run_id, exit_code=0, is_keeping=True)


def kept(report: ProcessEnded) -> OutputsKept:
    return OutputsKept(session=report.session, run_id=report.run_id, files="blake2b-1")


def test_a_run_is_closed_after_its_contents_are_kept_and_says_where() -> None:
    world, report = ending()
    world.observe(report)
    world.answer_all()
    assert world.is_running("s") and world.events("s", "run_finished") == []
    world.observe(kept(report))
    (finished,) = world.events("s", "run_finished")
    assert finished.outcome == "succeeded" and finished.files == "blake2b-1" and not world.is_running("s")


def test_contents_that_are_kept_first_do_not_replace_the_last_look() -> None:
    """Rule 29: the outputs are looked at before the run is closed, also if the contents are recorded first."""
    world, report = ending()
    world.observe(report)
    world.observe(kept(report))
    assert world.is_running("s")
    world.answer_all()
    assert world.outcomes("s") == ["succeeded"]


def test_what_is_never_kept_holds_a_run_for_half_a_minute() -> None:
    world, report = ending()
    world.observe(report)
    world.answer_all()
    world.advance(LONGEST_LAST_LOOK_SECONDS + 1)
    (finished,) = world.events("s", "run_finished")
    assert finished.files is None
    # A later report concerns a run that is over (rule 40).
    world.observe(kept(report))
    assert len(world.events("s", "run_finished")) == 1


def test_a_second_report_of_a_run_whose_contents_are_not_kept_changes_nothing() -> None:
    world, report = ending()
    world.observe(replace(report, is_keeping=False))
    world.observe(replace(report, exit_code=1))
    world.observe(kept(report))
    world.answer_all()
    assert world.outcomes("s") == ["succeeded"] and world.events("s", "run_finished")[0].files is None


def test_a_stop_while_contents_are_kept_is_obeyed() -> None:
    """Rule 23: cancel is accepted until the run is closed. Its contents are recorded all the same."""
    world, report = ending()
    world.observe(report)
    world.answer_all()
    world.call(calls.Cancel(name="s"))
    world.observe(kept(report))
    (finished,) = world.events("s", "run_finished")
    assert finished.outcome == "cancelled" and finished.files == "blake2b-1"
