"""What is found out before a run begins, in the combinations that specs allow: levels, checks, workspaces, traces, stops, defects."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from runners.conftest import Bench
from waiting import eventually_async
from wakeful.core.spec.session import Confinement
from wakeful.runners.contract import RunOrder, StopWord
from wakeful.runners.isolation import bubblewrap
from wakeful.runners.isolation import system_places as system
from wakeful.runners.isolation.landlock import probe_abi
from wakeful.runners.isolation.reach import Protected
from wakeful.runners.isolation.shield import can_shield
from wakeful.runners.prepare import preparation as preparing
from wakeful.runners.run import runner as command

pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.skipif(probe_abi() == 0, reason="this kernel has no Landlock: nothing can be confined here"),
]

OBSTACLE = bubblewrap.find_obstacle()
STRICT = pytest.mark.skipif(OBSTACLE is not None, reason=f"nothing can be isolated strictly here: {OBSTACLE}")


def confined(bench: Bench, script: str, *, level: str = "standard", **changes: object) -> RunOrder:
    """Reads `in.txt`, writes `out/`."""
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
    """What narrows /etc for a run is there for as long as the run is, however often others had a newer one."""
    monkeypatch.setattr(system, "_STALE_SECONDS", -1.0)
    check = ("sh", "-c", "cat in.txt && ! cat /etc/shadow")
    run_id = bench.start(confined(bench, "while [ ! -e out/go ]; do sleep 0.01; done", check=check))
    for _ in range(4):
        assert (await bench.run(confined(bench, "true"))).exit_code == 0
    (bench.root / "out/go").touch()
    ended = await bench.end_of(run_id)
    assert (ended.exit_code, ended.problem) == (0, None), bench.output(ended)


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
    """There is no process to signal yet, and there will be none; what would have landed does not."""
    run_id = bench.start(confined(bench, "echo ran > out/ran", level=level, is_traced=is_traced))
    bench.runner.stop(run_id, how, 5.0)
    ended = await bench.end_of(run_id)
    assert (ended.exit_code, ended.problem, ended.output.total_bytes) == (None, "stopped before it began", 0)
    assert not (bench.root / "out/ran").exists() and ended.staged == (() if level == "strict" else None)


@pytest.mark.parametrize("level", ["standard", "observe", pytest.param("strict", marks=STRICT)])
async def test_a_defect_while_a_run_is_being_prepared_ends_it_in_words(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    """Nobody else would ever end it. Whoever runs the daemon is told where it was."""

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
    """A trace that is refused, in a view of its own or not, ends before anything was opened, copied or staged for it."""
    monkeypatch.setattr(preparing, "find_obstacle", lambda: "no strace here")
    await bench.run(confined(bench, "true"))
    before = len(os.listdir("/proc/self/fd"))
    for level in ("standard", "strict", "none") * 5:
        ended = await bench.run(confined(bench, "true", level=level, is_traced=True))
        assert ended.problem == "no strace here", level
    # A thread may be about to remove a folder, or wait for the next run: what leaks once leaks fifteen times.
    assert len(os.listdir("/proc/self/fd")) < before + 5 and not (bench.state / "staged").exists()


def next_folder(bench: Bench) -> str:
    """Where the session's next run finds its own folder, before it has a name."""
    return str(bench.state / "runs" / "s-1.next")


async def ready(bench: Bench, order: RunOrder) -> None:
    """Run it once, and wait until all is ready for the next."""
    assert (await bench.run(order)).exit_code == 0
    plans = bench.runner._around.plans
    await eventually_async(
        lambda: (
            (known := plans._known.get("s-1")) is not None
            and known.readied is not None
            and known.readied.confined.has_taken_on
        ),
        what="ready for the next run",
    )


def count_threads() -> int:
    return len(os.listdir("/proc/self/task"))


async def test_the_next_run_of_a_session_is_launched_by_a_thread_that_is_confined_already(bench: Bench) -> None:
    """It sees what it should, its own folder too, though that had no name yet; and so does its check, for which nothing was readied."""
    own = "cat in.txt $WAKEFUL_CAUSES > /dev/null && ! cat /etc/shadow && ! cat $PWD/other/x.txt && stat -c %i ${WAKEFUL_CAUSES%/*}"
    (bench.root / "other").mkdir()
    (bench.root / "other/x.txt").write_text("not for it")
    await ready(bench, confined(bench, own, check=("sh", "-c", own)))
    number = os.stat(next_folder(bench)).st_ino
    ended = await bench.run(confined(bench, own, check=("sh", "-c", own)))
    assert (ended.exit_code, ended.problem) == (0, None), bench.output(ended)
    assert bench.output(ended).count(str(number).encode()) == 2


@pytest.mark.parametrize("place", ["out", "data", "in.txt"])
async def test_what_was_replaced_since_the_last_run_is_opened_as_it_is_now(bench: Bench, place: str) -> None:
    """Landlock opens files, not names: what was readied before would shut the next run out."""
    (bench.root / "data").mkdir()
    (bench.root / "data/a.csv").write_text("a")
    script = "cat in.txt data/a.csv > /dev/null && echo done > out/done"
    order = confined(bench, script, reads=("in.txt", "data/*.csv"))
    await ready(bench, order)
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
    """Landlock opens files, not names. Who binds the folder finds what comes into it."""
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
    await ready(bench, confined(bench, "echo 1 > out/a"))
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


async def test_only_the_sessions_that_ran_last_are_waited_for(bench: Bench) -> None:
    """Each of them costs a thread; what is given up leaves neither that nor its folder."""
    for number in range(20):
        assert (await bench.run(confined(bench, "true", session=f"s-{number}"))).exit_code == 0
    await eventually_async(
        lambda: not bench.runner._ended and bench.runner._readying is None, what="all that is worth it is ready"
    )
    left = sorted(path.name for path in (bench.state / "runs").glob("*.next"))
    assert left == sorted(f"s-{number}.next" for number in range(4, 20))
    many = count_threads()
    bench.runner._around.plans.give_up()
    await eventually_async(lambda: count_threads() <= many - 16, what="no thread waits any more")
    assert not list((bench.state / "runs").glob("*.next"))


async def test_what_is_found_out_before_a_start_is_sure_makes_nothing_of_the_project_s(bench: Bench) -> None:
    """The folder of an output is made when the run is on record, and not before."""
    order = confined(bench, "echo done > new/out.txt", writes=("new/out.txt",))
    bench.runner.foresee(order)
    assert not (bench.root / "new").exists()
    ended = await bench.run(order)
    assert (ended.exit_code, (bench.root / "new/out.txt").read_text()) == (0, "done\n")


async def test_a_foreseen_start_is_the_same_start(bench: Bench) -> None:
    order = confined(bench, "cat in.txt $WAKEFUL_CAUSES; ! cat /etc/shadow", causes=b'{"a": 1}')
    bench.runner.foresee(order)
    ended = await bench.run(order)
    assert ended.exit_code == 0 and bench.output(ended).startswith(b'in{"a": 1}')


async def test_what_was_foreseen_too_long_ago_or_for_another_order_is_found_out_anew(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = confined(bench, "cat in.txt")
    bench.runner.foresee(order)
    assert bench.output(await bench.run(replace(order, script="cat in.txt in.txt"))) == b"inin"
    monkeypatch.setattr(command, "_FORESEEN_SECONDS", -1.0)
    bench.runner.foresee(order := confined(bench, "cat in.txt", run_id="run-late"))
    os.rename(bench.root / "in.txt", bench.root / "before")
    (bench.root / "in.txt").write_text("new")
    assert bench.output(await bench.run(order)) == b"new"


async def test_what_was_foreseen_for_a_start_that_never_came_goes(bench: Bench) -> None:
    await ready(bench, confined(bench, "true"))
    before = count_threads()
    order = confined(bench, "true", session="s-2")
    bench.runner.foresee(order)
    assert os.path.isdir(order.folder)
    bench.runner.forget(order.run_id)
    await eventually_async(
        lambda: not os.path.exists(order.folder) and count_threads() <= before, what="nothing is left of it"
    )


@pytest.mark.parametrize("place", ["scratch", "temporary"])
async def test_a_folder_that_was_taken_away_between_two_runs_is_there_for_the_next(bench: Bench, place: str) -> None:
    script = 'echo 1 > "$WAKEFUL_SCRATCH/a" && echo 1 > "$TMPDIR/b" && rm "$WAKEFUL_SCRATCH/a" "$TMPDIR/b"'
    await ready(bench, confined(bench, script))
    for _ in range(2):
        os.rmdir(bench.state / place)
        ended = await bench.run(confined(bench, script))
        assert (ended.exit_code, ended.problem) == (0, None), bench.output(ended)
        await eventually_async(
            lambda: not bench.runner._ended and bench.runner._readying is None, what="all that is worth it is ready"
        )


@pytest.mark.parametrize("place", ["scratch", "temporary"])
async def test_a_folder_that_was_gone_before_anybody_was_ready_is_there_for_the_next(bench: Bench, place: str) -> None:
    script = 'echo 1 > "$WAKEFUL_SCRATCH/a" && echo 1 > "$TMPDIR/b" && rm "$WAKEFUL_SCRATCH/a" "$TMPDIR/b"'
    order = confined(bench, script)
    assert (await bench.run(order)).exit_code == 0
    os.rmdir(bench.state / place)
    await eventually_async(
        lambda: not bench.runner._ended and bench.runner._readying is None, what="all that is worth it is ready"
    )
    ended = await bench.run(confined(bench, script))
    assert (ended.exit_code, ended.problem) == (0, None), bench.output(ended)


async def test_readiness_for_the_next_run_leaves_nothing_of_the_last(bench: Bench) -> None:
    """Not even where what it could touch is another by then, and is found out anew."""
    order = confined(bench, "true")
    assert (await bench.run(order)).exit_code == 0
    os.rename(bench.root / "out", bench.root / "before")
    (bench.root / "out").mkdir()
    await eventually_async(
        lambda: os.path.isdir(next_folder(bench)) and not os.path.exists(order.folder), what="ready for the next run"
    )


def replace_folder(place: Path) -> None:
    os.rename(place, f"{place}.before")
    place.mkdir()


def make_anew(place: Path) -> None:
    """If the file system will, with the number that the old one had."""
    number = place.stat().st_ino
    for _ in range(200):
        place.rmdir()
        place.mkdir()
        if place.stat().st_ino == number:
            break


def mount_on(place: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "none", str(place)], check=True)


def protect(bench: Bench, protected: Protected) -> None:
    bench.runner._around = replace(bench.runner._around, protected=protected)


SHIELDING = pytest.mark.skipif(
    not can_shield(), reason="this user may not mount: NOTHING BESIDE AN OUTPUT CAN BE SHIELDED"
)


@SHIELDING
@pytest.mark.parametrize("change", [None, replace_folder, make_anew, mount_on])
@pytest.mark.parametrize("level", ["none", "standard"])
async def test_specs_beside_an_output_stay_as_they_are_whatever_became_of_them_since_the_last_run(
    bench: Bench, change: Callable[[Path], None] | None, level: str
) -> None:
    """They are shielded by mounts of the run's own, made ahead. Without that it would be done, as the first level shows."""
    specs, secrets = bench.root / "sessions.d", bench.root / "secrets"
    specs.mkdir()
    secrets.mkdir()
    (secrets / "key").write_text("for the daemon alone")
    protect(bench, Protected(specs=str(specs), hidden=(str(secrets), str(bench.state / "runs"))))
    script = "stat -c %i ${WAKEFUL_CAUSES%/*}; cat secrets/key || true; (echo changed > sessions.d/a.yaml) || true; echo done > report.md"

    def order() -> RunOrder:
        return confined(bench, script, writes=("report.md",), level=level)

    number = 0
    if level == "standard":
        await ready(bench, order())
        number = os.stat(next_folder(bench)).st_ino
    try:
        if change is not None:
            change(specs)
        ended = await bench.run(order())
        said = bench.output(ended)
        assert (bench.root / "report.md").read_text() == "done\n", said
        assert (specs / "a.yaml").exists() == (level == "none")
        assert (b"for the daemon alone" in said) == (level == "none")
        assert change is not None or level == "none" or str(number).encode() in said
    finally:
        if change is mount_on:
            subprocess.run(["umount", str(specs)], check=True)


@SHIELDING
async def test_mounts_that_were_made_ahead_are_nobody_s_when_they_are_given_up_or_used(bench: Bench) -> None:
    (specs := bench.root / "sessions.d").mkdir()
    protect(bench, Protected(specs=str(specs)))

    def read_link(path: str) -> str | None:
        try:
            return os.readlink(path)
        except FileNotFoundError:
            return None  # Gone since it was listed.

    def count_namespaces() -> int:
        spaces = {read_link(f"/proc/self/task/{task}/ns/mnt") for task in os.listdir("/proc/self/task")} - {None}
        held = [read_link(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
        return len(spaces) + sum(path is not None and path.endswith("/mountinfo") for path in held)

    before = count_namespaces()
    for _ in range(3):
        await ready(bench, confined(bench, "true", writes=("report.md",)))
        # Its thread, its own mounts and everybody's, which are compared.
        await eventually_async(lambda: count_namespaces() == before + 3, what="one waits, none is left of the last")
    bench.runner.unready("s-1")
    await eventually_async(lambda: count_namespaces() == before, what="none waits")


@pytest.mark.parametrize("level", ["standard", pytest.param("strict", marks=STRICT)])
async def test_a_link_that_leads_to_itself_is_not_there(bench: Bench, level: str) -> None:
    """It opens nothing and stops no run: the program finds what a person would."""
    (bench.root / "circle.txt").symlink_to("circle.txt")
    ended = await bench.run(
        confined(bench, "cat circle.txt || echo went on", level=level, reads=("in.txt", "circle.txt"))
    )
    assert ended.exit_code == 0 and b"went on" in bench.output(ended), ended
