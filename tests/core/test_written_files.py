"""Files written by a rewind or a merge count as writes of the session (rule 44).

The session is held while they are written and adopts them afterwards. Its readers are woken.
"""

from __future__ import annotations

import pytest

from core.simulated_world import World
from core.spec_builders import read, session, write
from wakeful.core.calls import call_types as calls
from wakeful.core.deciding.run_end import LONGEST_LAST_LOOK_SECONDS
from wakeful.core.record.observations import FilesWritten
from wakeful.core.record.state import Session
from wakeful.errors import CallerError

OUT = write("out/*", wake=True)


def start() -> World:
    """Make a world in which `sum` writes out/ and wakes when others write there, and `page` reads out/."""
    world = World(
        session("sum", read("data"), OUT), session("page", read("out/*")), files={"data": "1", "out/a": "by hand"}
    )
    world.rest()
    return world


def state(world: World, name: str) -> Session:
    return world.core.state.by_name(name)


def rewind(world: World, *, files: bool = True) -> None:
    """Rewind `sum` to the seq before its last record, the shortest rewind that is recorded."""
    now = state(world, "sum")
    past = world.fold_log(len(world.log))[now.id]
    world.call(calls.Note(name="sum", text="x"))
    world.call(calls.Rewind(name="sum", to=now.seq, past=past.recollect(), files=files), author="person:ada")


def merge(world: World) -> None:
    if "trial" not in world.core.state.ids:
        world.call(calls.Fork(name="sum", new="trial", past=state(world, "sum")))
    fork, base = state(world, "trial"), state(world, "sum").lineage.merges.get(state(world, "trial").id, 1)
    world.call(
        calls.Merge(name="sum", fork="trial", base={}, base_seq=base, fork_seq=fork.seq, record="blob"),
        author="person:ada",
    )


def put(world: World, *paths: str, text: str = "by the call") -> None:
    for path in paths:
        world.write(path, text)


def report(world: World, *paths: str) -> None:
    world.observe(FilesWritten(session=state(world, "sum").id, paths=paths))


def kinds(world: World, name: str, since: int = 0) -> list[str]:
    return [entry.kind for entry in world.log[since:] if entry.session == state(world, name).id]


@pytest.mark.parametrize(("call", "by"), [(rewind, "the rewind to seq "), (merge, "the merge of trial")])
def test_what_the_call_wrote_does_not_wake_its_session_and_wakes_its_readers(call: object, by: str) -> None:
    world = start()
    runs, reader_runs, length = state(world, "sum").tally.runs, state(world, "page").tally.runs, len(world.log)
    call(world)
    position = state(world, "sum").seq
    put(world, "out/a", "out/b")
    report(world, "out/a", "out/b")
    world.rest()
    now = state(world, "sum")
    assert (now.tally.runs, state(world, "page").tally.runs) == (runs, reader_runs + 1)
    adopted = next(entry for entry in world.log[length:] if entry.kind == "outputs_adopted")
    assert (adopted.author, adopted.event.position) == ("person:ada", position) and adopted.event.by.startswith(by)
    assert now.marks.seen[OUT.identity] == now.marks.good[OUT.identity] == adopted.event.versions[OUT.identity]
    world.write("out/a", "by hand")
    world.rest()
    assert state(world, "sum").tally.runs == runs + 1, "what others make of it afterwards wakes as ever"


def test_nothing_starts_while_the_files_are_written() -> None:
    """Half of the files is not a version to run on.

    Neither the session nor a reader starts, not even after an activation.
    """
    world = start()
    runs, length = (state(world, "sum").tally.runs, state(world, "page").tally.runs), len(world.log)
    merge(world)
    put(world, "out/a")
    world.look()
    assert "wake_requested" not in kinds(world, "sum", length), "half of its own files is nothing to be woken by"
    world.call(calls.Activate(name="sum"))
    world.write("data", "2")
    world.rest(60.0)
    assert (state(world, "sum").tally.runs, state(world, "page").tally.runs) == runs
    assert "upstream sum has files written by the merge of trial" in (world.queued("page") or "")
    put(world, "out/b")
    report(world, "out/a", "out/b")
    world.rest()
    assert state(world, "sum").tally.runs == runs[0] + 1
    causes = next(
        entry.event.causes
        for entry in reversed(world.log)
        if entry.kind == "run_started" and entry.session == state(world, "sum").id
    )
    assert {cause.binding for cause in causes} == {"activation", "data"}, "its own files are no cause"


@pytest.mark.parametrize("call", [rewind, merge])
def test_readers_start_once_after_the_last_of_the_files(call: object) -> None:
    """Rule 44: readers see one step. They look after each file, and start once, after the last file."""
    world = start()
    before, names = state(world, "page").tally.runs, [f"out/{number}" for number in range(5)]
    call(world)
    for name in names:
        put(world, name)
        world.rest(60.0)
        assert state(world, "page").tally.runs == before and not world.is_running("page")
    report(world, *names)
    world.rest(60.0)
    assert state(world, "page").tally.runs == before + 1
    [started] = [
        entry.event for entry in world.log if entry.kind == "run_started" and entry.session == state(world, "page").id
    ][before:]
    assert started.versions[read("out/*").identity] == world.core.looked.targets[world.keys_of("out/*")[0]].version


def test_a_queued_session_waits_until_the_files_of_a_merge_are_there() -> None:
    """A session that was about to start when the merge was recorded starts after it."""
    world = start()
    world.call(calls.Sleep(name="sum"))
    world.write("data", "2")
    world.look()
    merge(world)
    world.call(calls.Resume(name="sum"))
    assert not world.is_running("sum") and world.queued("sum") == "files written by the merge of trial"
    report(world)
    world.answer_all()
    assert world.is_running("sum")


def test_what_other_hands_changed_at_the_same_time_still_wakes() -> None:
    """The output differs by more than the call wrote. So its version is not the session's own, and wakes it."""
    world = start()
    runs = state(world, "sum").tally.runs
    rewind(world)
    put(world, "out/a")
    world.write("out/theirs", "by hand")
    report(world, "out/a")
    world.rest()
    assert "outputs_adopted" not in kinds(world, "sum") and state(world, "sum").tally.runs == runs + 1


def test_what_is_owed_for_an_output_before_a_merge_stays_owed() -> None:
    world = start()
    runs = state(world, "sum").tally.runs
    world.call(calls.Sleep(name="sum"))
    world.write("out/theirs", "by hand")
    world.look()
    merge(world)
    put(world, "out/a")
    report(world, "out/a")
    world.rest()
    world.call(calls.Resume(name="sum"))
    world.rest()
    assert state(world, "sum").tally.runs == runs + 1


def test_a_crash_before_the_files_were_looked_at_loses_no_wake() -> None:
    """After the crash the writer of the files is unknown. They count as any change does."""
    world = start()
    runs, reader_runs = state(world, "sum").tally.runs, state(world, "page").tally.runs
    rewind(world)
    put(world, "out/a")
    world.crash()
    world.rest()
    assert (state(world, "sum").tally.runs, state(world, "page").tally.runs) == (runs + 1, reader_runs + 1)


def test_a_call_that_wrote_nothing_leaves_no_record_and_lets_go() -> None:
    world = start()
    runs = state(world, "sum").tally.runs
    rewind(world)
    length = len(world.log)
    report(world)
    world.rest()
    assert len(world.log) == length and world.core.looked.writing == {}
    world.write("data", "2")
    world.rest()
    assert state(world, "sum").tally.runs == runs + 1


def test_one_call_after_the_other_writes_and_both_are_adopted() -> None:
    """While files are written a second call is refused. Once they are written, it need not wait for the look."""
    world = start()
    runs = state(world, "sum").tally.runs
    rewind(world)
    with pytest.raises(CallerError, match="has files written by the rewind to seq .* just now"):
        merge(world)
    put(world, "out/a")
    report(world, "out/a")
    merge(world)
    put(world, "out/b")
    report(world, "out/b")
    world.rest()
    assert kinds(world, "sum").count("outputs_adopted") == 1 and state(world, "sum").tally.runs == runs


def test_a_call_that_comes_between_the_looks_at_the_files_of_another_forgets_none_of_them() -> None:
    """The second call comes after the look at one output and before the look at the other.

    The session adopts both in the end.
    """
    log = write("log", wake=True)
    world = World(session("sum", read("data"), OUT, log), files={"data": "1", "out/a": "by hand"})
    world.rest()
    runs = state(world, "sum").tally.runs
    rewind(world)
    put(world, "out/a", "log")
    report(world, "out/a", "log")
    world.answer(0)
    merge(world)
    put(world, "out/b")
    report(world, "out/b")
    world.rest()
    (adopted,) = (entry.event for entry in world.log if entry.kind == "outputs_adopted")
    assert adopted.versions.keys() == {OUT.identity, log.identity} and state(world, "sum").tally.runs == runs


def test_a_look_that_hangs_holds_the_session_for_a_while_and_not_for_ever() -> None:
    world = start()
    rewind(world)
    put(world, "out/a")
    report(world, "out/a")
    world.looks.clear()
    world.advance(LONGEST_LAST_LOOK_SECONDS - 1)
    assert state(world, "sum").id in world.core.looked.writing
    world.advance(2.0)
    assert world.core.looked.writing == {} and "outputs_adopted" not in kinds(world, "sum")


@pytest.mark.parametrize("end", [calls.Terminate(name="sum"), calls.Freeze(name="sum", move="m", to="laptop")])
def test_a_session_that_is_closed_before_the_look_adopts_nothing(end: calls.Call) -> None:
    world = start()
    rewind(world)
    put(world, "out/a")
    if isinstance(end, calls.Freeze):
        report(world, "out/a")
    world.call(end)
    length = len(world.log)
    report(world, "out/a")
    world.rest()
    assert "outputs_adopted" not in kinds(world, "sum", length) and world.core.looked.writing == {}


def test_finishing_what_a_dead_daemon_left_is_a_hold_without_a_record() -> None:
    world = start()
    runs = state(world, "sum").tally.runs
    merge(world)
    position = state(world, "sum").seq
    world.crash()
    world.rest()
    length = len(world.log)
    finish = calls.Finish(name="sum", position=position, words="the merge of trial")
    world.call(finish, author="person:ada")
    assert len(world.log) == length
    with pytest.raises(CallerError, match="just now"):
        world.call(finish)
    put(world, "out/a")
    report(world, "out/a")
    world.rest()
    assert kinds(world, "sum", length) == ["outputs_adopted"] and state(world, "sum").tally.runs == runs
