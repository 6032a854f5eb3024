"""Preparations before a run begins, in the combinations that specs allow.

These are levels, checks, workspaces, traces, stops and defects.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio
from msgspec.structs import replace

from runners.conftest import Bench, open_bench
from wait_conditions import eventually_async
from wakeful.core.spec.session import Confinement
from wakeful.runners import preparation
from wakeful.runners import preparation as preparing
from wakeful.runners.contract import RunOrder, StopWord
from wakeful.runners.isolation import bubblewrap
from wakeful.runners.isolation import system_places as system
from wakeful.runners.isolation.landlock import probe_abi
from wakeful.runners.isolation.reach import Protected
from wakeful.runners.isolation.shield import can_shield
from wakeful.runners.process import procfs

pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.skipif(probe_abi() == 0, reason="this kernel has no Landlock: nothing can be confined here"),
]

OBSTACLE = bubblewrap.find_obstacle()
STRICT = pytest.mark.skipif(OBSTACLE is not None, reason=f"nothing can be isolated strictly here: {OBSTACLE}")


def confined(bench: Bench, script: str, *, level: str = "standard", **changes: object) -> RunOrder:
    """Return an order for a confined run that reads `in.txt` and writes `out/`."""
    (bench.root / "in.txt").write_text("in")
    (bench.root / "out").mkdir(exist_ok=True)
    values = {
        "reads": ("in.txt",),
        "writes": ("out/**",),
        "confinement": Confinement(level=level),
        "cwd": str(bench.root),
        "staging": str(bench.state / "staged"),
    }
    return bench.shell(script, **(values | changes))


async def test_a_check_is_confined_as_its_command_was_though_etc_was_looked_at_anew_meanwhile(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The restriction of /etc lasts as long as the run, although later runs get a newer one."""
    monkeypatch.setattr(system, "_STALE_SECONDS", -1.0)
    check = ("sh", "-c", "cat in.txt && ! cat /etc/shadow")
    run_id = bench.start(confined(bench, "while [ ! -e out/go ]; do sleep 0.01; done", check=check))
    for _ in range(4):
        assert (await bench.run(confined(bench, "true"))).exit_code == 0
    (bench.root / "out/go").touch()
    ended = await bench.end_of(run_id)
    assert (ended.exit_code, ended.problem) == (0, None), bench.output(ended)


async def test_a_run_that_has_to_wait_for_a_look_at_etc_does_not_wait_on_the_loop(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    makers: list[bool] = []
    make = system._make_guard

    def note() -> system._Made:
        makers.append(threading.current_thread() is threading.main_thread())
        return make()

    monkeypatch.setattr(system, "_make_guard", note)
    monkeypatch.setattr(system, "_read_changes", lambda: (0, 0))
    assert (await bench.run(confined(bench, "cat in.txt"))).exit_code == 0
    assert makers == [False]
    assert (await bench.run(confined(bench, "cat in.txt"))).exit_code == 0
    assert makers == [False], "what was made is used again"


@pytest.mark.parametrize(
    ("level", "is_traced"),
    [
        pytest.param("strict", False, marks=STRICT),
        ("observe", False),
        ("standard", True),
        pytest.param("strict", True, marks=STRICT),
    ],
)
@pytest.mark.parametrize("how", ["interrupt", "terminate", "kill"])
async def test_a_stop_while_a_run_is_being_prepared_begins_nothing(
    bench: Bench, level: str, is_traced: bool, how: StopWord
) -> None:
    """There is no process to signal yet, and none starts. No output lands."""
    run_id = bench.start(confined(bench, "echo ran > out/ran", level=level, is_traced=is_traced))
    bench.runner.stop(run_id, how, 5.0)
    ended = await bench.end_of(run_id)
    assert (ended.exit_code, ended.problem, ended.output.total_bytes) == (None, "stopped before it began", 0)
    assert not (bench.root / "out/ran").exists() and ended.staged == (() if level == "strict" else None)


@pytest.mark.parametrize("level", ["standard", "observe", pytest.param("strict", marks=STRICT)])
async def test_a_defect_while_a_run_is_being_prepared_ends_it_in_words(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    """Otherwise the run would never end. The exception handler gets the traceback once."""

    def fail() -> str | None:
        raise RuntimeError("half a thought")

    monkeypatch.setattr(preparing, "find_obstacle", fail)
    told: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, said: told.append(said))
    ended = await bench.run(confined(bench, "echo ran > out/ran", level=level, is_traced=True))
    assert ended.exit_code is None and "a defect of wakeful: RuntimeError: half a thought" in str(ended.problem)
    await eventually_async(lambda: told)
    assert len(told) == 1 and not (bench.root / "out/ran").exists()


async def test_what_cannot_be_traced_leaves_nothing_open(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused trace ends the run before any file was opened, copied or staged for it, with or without a view."""
    monkeypatch.setattr(preparing, "find_obstacle", lambda: "no strace here")
    await bench.run(confined(bench, "true"))
    before = len(os.listdir("/proc/self/fd"))
    for level in ("standard", "strict", "none") * 5:
        ended = await bench.run(confined(bench, "true", level=level, is_traced=True))
        assert ended.problem == "no strace here", level
    # A thread may be about to remove a folder, or wait for the next run. A leak would show fifteen times.
    assert len(os.listdir("/proc/self/fd")) < before + 5 and not (bench.state / "staged").exists()


def count_threads() -> int:
    return len(os.listdir("/proc/self/task"))


async def test_the_next_run_of_a_session_reaches_the_same_by_a_plan_that_is_known(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second run has the same reach and its own folder, and so has its check.

    Both use the plan of the first run.
    """
    own = "cat in.txt $WAKEFUL_CAUSES > /dev/null && ! cat /etc/shadow && ! cat $PWD/other/x.txt && stat ${WAKEFUL_CAUSES%/*} > /dev/null"
    (bench.root / "other").mkdir()
    (bench.root / "other/x.txt").write_text("not for it")
    assert (await bench.run(confined(bench, own, check=("sh", "-c", own)))).exit_code == 0
    made: list[RunOrder] = []
    monkeypatch.setattr(preparation, "make_plan", lambda order, *_, **__: made.append(order))
    ended = await bench.run(confined(bench, own, check=("sh", "-c", own)))
    assert (ended.exit_code, ended.problem, made) == (0, None, []), bench.output(ended)


@pytest.mark.parametrize("place", ["out", "data", "in.txt"])
async def test_what_was_replaced_since_the_last_run_is_opened_as_it_is_now(bench: Bench, place: str) -> None:
    """Landlock opens files, not names: a plan for the old files would lock out the next run."""
    (bench.root / "data").mkdir()
    (bench.root / "data/a.csv").write_text("a")
    script = "cat in.txt data/a.csv > /dev/null && echo done > out/done"
    order = confined(bench, script, reads=("in.txt", "data/*.csv"))
    assert (await bench.run(order)).exit_code == 0
    os.rename(bench.root / place, bench.root / "before")
    if place == "in.txt":
        (bench.root / place).write_text("new")
    else:
        (bench.root / place).mkdir()
        (bench.root / place / "a.csv").write_text("new")
    ended = await bench.run(confined(bench, script, reads=("in.txt", "data/*.csv")))
    assert (ended.exit_code, ended.problem) == (0, None), bench.output(ended)


@pytest.mark.parametrize("bound", ["in.txt", "*.txt"])
async def test_a_file_that_is_replaced_while_a_run_is_under_way_is_closed_to_it_and_that_is_told(
    bench: Bench, bound: str
) -> None:
    """Landlock opens files, not names. A binding of the folder's files includes new ones."""
    run_id = bench.start(
        confined(bench, "touch out/begun; while [ ! -e out/go ]; do sleep 0.01; done; cat in.txt", reads=(bound,))
    )
    await eventually_async((bench.root / "out/begun").exists)
    (bench.root / "new").write_text("new")
    os.rename(bench.root / "new", bench.root / "in.txt")
    (bench.root / "out/go").touch()
    ended = await bench.end_of(run_id)
    if bound == "in.txt":
        assert ended.exit_code == 1 and "in.txt was saved while it ran" in str(ended.hint)
    else:
        assert (ended.exit_code, bench.output(ended), ended.hint) == (0, b"new", None)


async def test_a_link_that_was_put_in_the_place_of_an_output_is_refused_as_ever(bench: Bench) -> None:
    assert (await bench.run(confined(bench, "echo 1 > out/a"))).exit_code == 0
    outside = bench.folder / "outside"
    outside.mkdir()
    os.rename(bench.root / "out", bench.root / "before")
    os.symlink(outside, bench.root / "out")
    (bench.root / "in.txt").write_text("in")
    ended = await bench.run(
        bench.shell(
            "echo 2 > out/a",
            reads=("in.txt",),
            writes=("out/**",),
            cwd=str(bench.root),
            staging=str(bench.state / "staged"),
        )
    )
    assert ended.problem is not None and "by a symbolic link" in ended.problem
    assert list(outside.iterdir()) == []


async def test_a_session_at_rest_costs_no_thread_and_no_process(bench: Bench) -> None:
    """This holds for any number of sessions, under every level."""
    before, children = count_beside(), set(procfs.children_of(os.getpid()))
    levels = ("standard", "none", "strict") if OBSTACLE is None else ("standard", "none")
    for number in range(12):
        order = confined(bench, "true", session=f"s-{number}", level=levels[number % len(levels)])
        assert (await bench.run(replace(order, staging=f"{order.staging}-{number}"))).exit_code == 0
    bench.runner.tidy()
    await eventually_async(
        lambda: count_beside() <= before and set(procfs.children_of(os.getpid())) <= children, what="nothing is left"
    )
    # A thread of the pool removes a run's folder after the run's end was reported.
    await eventually_async(lambda: not os.listdir(bench.state / "runs"), what="no folder of a run is left")


def count_beside() -> int:
    """Count the threads of this process, without the shared ones that do blocking work."""
    return count_threads() - sum(thread.name.startswith("blocking-") for thread in threading.enumerate())


@pytest.mark.parametrize("level", ["standard", pytest.param("strict", marks=STRICT)])
async def test_what_is_found_out_before_a_start_is_sure_makes_nothing_of_the_project_s(
    bench: Bench, level: str
) -> None:
    """The folder of an output is made when the run is on record, and not before."""
    order = confined(bench, "echo done > new/out.txt", writes=("new/out.txt",), level=level)
    ticket = bench.runner.prepare(order)
    await asyncio.sleep(0.05)
    assert not (bench.root / "new").exists()
    ticket.launch()
    ended = await bench.end_of(order.run_id)
    assert ended.exit_code == 0 and (bench.root / "new").is_dir()
    assert [output.path for output in ended.staged or ()] == (["new/out.txt"] if level == "strict" else [])


@pytest.mark.parametrize("pause_seconds", [0.0, 0.02, 0.2])
@pytest.mark.parametrize("level", ["standard", "none", pytest.param("strict", marks=STRICT)])
async def test_a_start_that_was_prepared_early_is_the_same_start(
    bench: Bench, level: str, pause_seconds: float
) -> None:
    """The preparation was made a moment ago, is under way, or was made too long ago."""
    (bench.root / "out").mkdir()
    (bench.root / "out/before").write_text("was there")
    script = "cat in.txt $WAKEFUL_CAUSES out/before; echo more > out/after"
    order = confined(bench, script, causes=b'{"a": 1}', level=level)
    ticket = bench.runner.prepare(order)
    await asyncio.sleep(pause_seconds)
    ticket.launch()
    ended = await bench.end_of(order.run_id)
    assert (ended.exit_code, bench.output(ended)) == (0, b'in{"a": 1}was there'), ended
    assert [output.path for output in ended.staged or ()] == (["out/after"] if level == "strict" else [])


async def test_what_was_prepared_too_long_ago_is_prepared_anew(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparing, "FRESH_SECONDS", -1.0)
    order = confined(bench, "cat in.txt")
    ticket = bench.runner.prepare(order)
    os.rename(bench.root / "in.txt", bench.root / "before")
    (bench.root / "in.txt").write_text("new")
    ticket.launch()
    assert bench.output(await bench.end_of(order.run_id)) == b"new"


@pytest.mark.parametrize("level", ["standard", pytest.param("strict", marks=STRICT)])
async def test_what_was_prepared_for_a_start_that_never_came_goes(bench: Bench, level: str) -> None:
    before, descriptors = count_beside(), len(os.listdir("/proc/self/fd"))
    order = confined(bench, "true", session="s-2", level=level)
    ticket = bench.runner.prepare(order)
    await eventually_async(lambda: os.path.isdir(order.folder))
    ticket.discard()
    await eventually_async(
        lambda: (
            not os.path.exists(order.folder)
            and not os.path.exists(str(order.staging))
            and count_beside() <= before
            and len(os.listdir("/proc/self/fd")) <= descriptors + 2
        ),
        what="nothing is left of it",
    )


@pytest.mark.parametrize("place", ["scratch", "temporary"])
async def test_a_folder_that_was_taken_away_between_two_runs_is_there_for_the_next(bench: Bench, place: str) -> None:
    script = 'echo 1 > "$WAKEFUL_SCRATCH/a" && echo 1 > "$TMPDIR/b" && rm "$WAKEFUL_SCRATCH/a" "$TMPDIR/b"'
    assert (await bench.run(confined(bench, script))).exit_code == 0
    for _ in range(2):
        os.rmdir(bench.state / place)
        ended = await bench.run(confined(bench, script))
        assert (ended.exit_code, ended.problem) == (0, None), bench.output(ended)


def replace_folder(place: Path) -> None:
    os.rename(place, f"{place}.before")
    place.mkdir()


def make_anew(place: Path) -> None:
    """Make the folder again, with the inode number of the old one if the file system reuses it."""
    number = place.stat().st_ino
    for _ in range(200):
        place.rmdir()
        place.mkdir()
        if place.stat().st_ino == number:
            break


def mount_on(place: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "none", str(place)], check=True)


@pytest_asyncio.fixture
async def guarded(tmp_path: Path, subreaper: None) -> AsyncIterator[Bench]:
    """A bench whose runner protects the specs and hides the secrets."""
    root, state = tmp_path / "root", tmp_path / "state"
    hidden = (str(root / "secrets"), str(state / "runs"))
    async with open_bench(tmp_path, protected=Protected(specs=str(root / "sessions.d"), hidden=hidden)) as bench:
        yield bench


SHIELDING = pytest.mark.skipif(
    not can_shield(), reason="this user may not mount: NOTHING BESIDE AN OUTPUT CAN BE SHIELDED"
)


@SHIELDING
@pytest.mark.parametrize("change", [None, replace_folder, make_anew, mount_on])
@pytest.mark.parametrize("level", ["none", "standard"])
async def test_specs_beside_an_output_stay_as_they_are_whatever_became_of_them_since_the_last_run(
    guarded: Bench, change: Callable[[Path], None] | None, level: str
) -> None:
    """Mounts of the run's own shield the specs. Without isolation the run changes them, as the level `none` shows."""
    specs, secrets = guarded.root / "sessions.d", guarded.root / "secrets"
    specs.mkdir()
    secrets.mkdir()
    (secrets / "key").write_text("for the daemon alone")
    script = "cat secrets/key || true; (echo changed > sessions.d/a.yaml) || true; echo done > report.md"

    def order() -> RunOrder:
        return confined(guarded, script, writes=("report.md",), level=level)

    if level == "standard":
        assert (await guarded.run(order())).exit_code == 0
    try:
        if change is not None:
            change(specs)
        ended = await guarded.run(order())
        said = guarded.output(ended)
        assert (guarded.root / "report.md").read_text() == "done\n", said
        assert (specs / "a.yaml").exists() == (level == "none")
        assert (b"for the daemon alone" in said) == (level == "none")
    finally:
        if change is mount_on:
            subprocess.run(["umount", str(specs)], check=True)


@STRICT
@pytest.mark.parametrize("place", ["out", "data", "in.txt"])
async def test_a_view_shows_what_was_replaced_since_the_last_run_as_it_is_now(bench: Bench, place: str) -> None:
    """A view shows files, not names. Editors replace a file when they save it."""
    (bench.root / "data").mkdir()
    (bench.root / "data/a.csv").write_text("a")

    def order() -> RunOrder:
        found = confined(
            bench, "cat in.txt data/a.csv && echo done > out/done", level="strict", reads=("in.txt", "data/*.csv")
        )
        return replace(found, staging=f"{found.staging}-{found.run_id}")

    assert (await bench.run(order())).exit_code == 0
    os.rename(bench.root / place, bench.root / "before")
    if place == "in.txt":
        (bench.root / place).write_text("new")
    else:
        (bench.root / place).mkdir()
        (bench.root / place / "a.csv").write_text("new")
    ended = await bench.run(order())
    words = (bench.root / "in.txt").read_bytes() + (bench.root / "data/a.csv").read_bytes()
    assert (ended.exit_code, bench.output(ended)) == (0, words), ended


@pytest.mark.parametrize("level", ["standard", pytest.param("strict", marks=STRICT)])
async def test_a_link_that_leads_to_itself_is_not_there(bench: Bench, level: str) -> None:
    """The link grants nothing and stops no run. The program finds the same as a person would."""
    (bench.root / "circle.txt").symlink_to("circle.txt")
    ended = await bench.run(
        confined(bench, "cat circle.txt || echo went on", level=level, reads=("in.txt", "circle.txt"))
    )
    assert ended.exit_code == 0 and b"went on" in bench.output(ended), ended
