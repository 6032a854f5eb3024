"""Strict runs whose view was made before they were due: the same runs as all others, and nothing is left where none comes."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from runners.conftest import Bench
from runners.readying_daemon import Waits, run_each
from waiting import eventually_async
from wakeful.core.record.observations import ProcessEnded
from wakeful.core.spec.session import Confinement, RunLimits
from wakeful.runners.contract import RunOrder
from wakeful.runners.isolation.bubblewrap import find_obstacle
from wakeful.runners.prepare import preparation as preparing
from wakeful.runners.prepare import waiting_view as waiting
from wakeful.runners.prepare.waiting_view import WaitingView
from wakeful.runners.process import proc
from wakeful.runners.process.mark import mark_of, read_mark

OBSTACLE = find_obstacle()
pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.skipif(OBSTACLE is not None, reason=f"nothing can be isolated strictly here: {OBSTACLE}"),
]
READYING_DAEMON = Path(__file__).with_name("readying_daemon.py")
NOBODY = 65534


@pytest.fixture
def held() -> Iterator[list[int]]:
    """Descriptors of namespaces, so that their numbers are not given out again."""
    fds: list[int] = []
    yield fds
    for fd in fds:
        os.close(fd)


class Daemon:
    """One that runs what it is told, and is killed."""

    def __init__(self, bench: Bench, *wrap: str) -> None:
        self._bench = bench
        argv = (*wrap, sys.executable, str(READYING_DAEMON), str(bench.state))
        self._process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": ":".join(sys.path)}
        )

    def run(self, order: RunOrder) -> Waits:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(msgspec.json.encode(order) + b"\n")
        self._process.stdin.flush()
        return msgspec.json.decode(self._process.stdout.readline(), type=Waits)

    def __enter__(self) -> Daemon:
        self._bench.children.spawned(self._process.pid)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._bench.children.gone(self._process.pid)


def strictly(bench: Bench, script: str, *, network: bool = False, **changes: object) -> RunOrder:
    """Reads `in.txt`, writes `out/`, and says first which namespace it is in."""
    if not (bench.root / "in.txt").exists():
        (bench.root / "in.txt").write_text("in")
    (bench.root / "out").mkdir(exist_ok=True)
    values = {"reads": ("in.txt",), "writes": ("out/*",), "confinement": Confinement(level="strict", network=network)}
    order = bench.shell(f"readlink /proc/self/ns/pid\n{script}", **(values | changes))
    return msgspec.structs.replace(order, staging=str(bench.state / "staged" / order.run_id))


def said(bench: Bench, ended: ProcessEnded) -> tuple[str, bytes]:
    """Which namespace a run was in, and the rest of its output."""
    space, _, rest = bench.output(ended).partition(b"\n")
    return space.decode(), rest


async def wait_ready(bench: Bench, session: str = "s-1") -> WaitingView:
    views = bench.runner._around.views
    return await eventually_async(
        lambda: (one := views._waiting.get(session)) is not None and one.pids and one, what="a view for the next run"
    )


async def ready(bench: Bench, order: RunOrder) -> WaitingView:
    """Run it once, and wait until a shell waits for the next."""
    assert (await bench.run(order)).exit_code == 0
    return await wait_ready(bench, order.session)


def space_of(view: WaitingView, held: list[int]) -> str:
    held.append(os.open(f"/proc/{view.pids[-1]}/ns/pid", os.O_RDONLY))
    return os.readlink(f"/proc/{view.pids[-1]}/ns/pid")


async def run_waited(bench: Bench, make: Callable[[], RunOrder], held: list[int]) -> ProcessEnded:
    """A run that was waited for. /etc and the mounts are everybody's: where they changed just now, it is the next."""
    for _ in range(20):
        space = space_of(await wait_ready(bench), held)
        ended = await bench.run(make())
        if said(bench, ended)[0] == space:
            return ended
    raise AssertionError("no run was waited for")


def is_gone(view: WaitingView) -> bool:
    return not any(os.path.exists(f"/proc/{pid}") for pid in view.pids)


@pytest.mark.parametrize("network", [False, True])
async def test_a_run_that_was_waited_for_finds_what_all_others_find(
    bench: Bench, held: list[int], network: bool
) -> None:
    """Its files and mounts, its descriptors, limits and rights, and the record of it is the same."""
    tell = """
        cat in.txt $WAKEFUL_CAUSES $WAKEFUL_TOKEN_FILE; readlink /proc/self/fd/0 /proc/self/cwd; ls /proc/self/fd | wc -l; umask; ulimit -a
        cut -d " " -f 5-6 /proc/self/mountinfo; grep -E "Cap|NoNewPrivs|Seccomp|Sig(Blk|Ign|Cgt)" /proc/self/status; ls -A / /tmp /dev; set -- /proc/[0-9]*; echo $#
        cat /etc/shadow 2>&1 || true; echo x 2>&1 > in.txt || true; cut -d : -f 1 /proc/net/dev
    """
    changes = {"network": network, "limits": RunLimits(open_files=99), "causes": b"[1]"}
    made = await bench.run(strictly(bench, tell, **changes))
    waited = await run_waited(bench, lambda: strictly(bench, tell, **changes), held)
    assert said(bench, waited)[1] == said(bench, made)[1] and made.exit_code == 0
    assert msgspec.structs.replace(waited, usage=made.usage, output=made.output, run_id=made.run_id) == made


@pytest.mark.parametrize(
    "more",
    [{}, {"a.b-c": "dots", "IFS": "x", "OPTIND": "none", "PS1": "", "PPID": "1"}],
    ids=["names of no meaning", "others"],
)
@pytest.mark.parametrize("shell", [None, "/bin/sh", "/bin/bash"])
async def test_its_environment_is_the_same_to_the_last_byte(
    bench: Bench, held: list[int], monkeypatch: pytest.MonkeyPatch, shell: str | None, more: dict[str, str]
) -> None:
    """Whatever a shell may think of names and values."""
    if shell is not None:
        monkeypatch.setattr(waiting, "_PLAIN_SHELL", "/bin/none")
        monkeypatch.setattr(waiting, "_ANY_SHELL", shell)
    text = "import os, sys; print(os.readlink('/proc/self/ns/pid'), flush=True); sys.stdout.buffer.write(b'\\0'.join(sorted(b'='.join(one) for one in os.environb.items())))"
    values = {
        "LINES": "a\n\nb'\"$(x)`y`\\",
        "BYTES": os.fsdecode(bytes(range(1, 256))),
        "UID": "7",
        "_": "y",
        "SHLVL": "9",
        "empty_1": "",
        "OLDPWD": "/",
        **more,
    }

    def order() -> RunOrder:
        found = strictly(bench, "", env=values)
        return msgspec.structs.replace(found, script=None, argv=(sys.executable, "-c", text), run_id="run-1")

    made = await bench.run(order())
    bench.reports.clear()
    waited = await run_waited(bench, lambda: bench.reports.clear() or order(), held)
    told = said(bench, made)[1]
    assert said(bench, waited)[1] == told and all(
        os.fsencode(f"{name}={value}") in told.split(b"\0") for name, value in values.items()
    )


async def test_what_a_shell_cannot_be_told_is_launched_as_ever(bench: Bench, held: list[int]) -> None:
    """A program whose name reads like a variable; and one that is not there is refused in the same words."""
    program = bench.root / "in=1.sh"
    program.write_text("#!/bin/sh\nreadlink /proc/self/ns/pid\n")
    program.chmod(0o755)

    def order(*argv: str) -> RunOrder:
        return msgspec.structs.replace(strictly(bench, "", reads=("in.txt", "*.sh")), argv=argv, script=None)

    space = space_of(await ready(bench, order("true")), held)
    ended = await bench.run(order(str(program)))
    assert ended.exit_code == 0 and said(bench, ended)[0] not in ("", space)
    await wait_ready(bench)
    assert "no such program in PATH" in str((await bench.run(order("nowhere"))).problem)


async def test_its_processes_are_the_run_s_from_its_release_on(bench: Bench) -> None:
    """They were there before it, with a mark of their own; whoever looks for the run's finds all of them."""
    view = await ready(bench, strictly(bench, "true"))
    # Whatever else ends meanwhile: they are no strays, no run's, and no person's.
    bench.runner.tidy()
    assert all(
        bench.is_alive(pid) and (owner := bench.runner.owner(pid)) is not None and owner.run_id is None
        for pid in view.pids
    )
    order = strictly(bench, "sleep 1000 & setsid sleep 1000 & echo begun > $WAKEFUL_SCRATCH/begun; sleep 1000")
    bench.start(order)
    await eventually_async(lambda: (bench.state / "scratch/begun").exists())
    assert bench.runner._runs[order.run_id]._process.pid == view.pids[0]
    tree = await eventually_async(
        lambda: len(found := [view.pids[0], *proc.descendants_of(view.pids[0])]) == 6 and found
    )
    assert {read_mark(pid) for pid in tree} == {mark_of(os.path.realpath(bench.state), order.run_id)}
    assert {owner.run_id for pid in tree if (owner := bench.runner.owner(pid)) is not None} == {order.run_id}
    assert all(bench.runner.owner(pid) for pid in tree)
    bench.runner.stop(order.run_id, "terminate", 0.1)
    await bench.end_of(order.run_id)
    assert not any(bench.is_alive(pid) for pid in tree)


async def test_outputs_are_staged_as_they_are_at_its_start(bench: Bench, held: list[int]) -> None:
    """Not as they were when its view was made, nor where; and its check, for which nothing waits, sees the same."""
    (bench.root / "out").mkdir()
    (bench.root / "out/gone").write_text("1")
    check = ("cat", "out/made")
    await ready(bench, strictly(bench, "echo x > out/made", check=check))
    by_rename(bench.root / "out")
    (bench.root / "out/new").write_text("new")
    # The script is the run's own, handed over as a file: a view knows nothing of it.
    ended = await run_waited(
        bench, lambda: strictly(bench, "ls out; cat out/new; echo x > out/made", check=check), held
    )
    assert said(bench, ended)[1] == b"new\nnew--- check: cat out/made\nx\n" and ended.exit_code == 0
    assert [(output.path, output.base) for output in ended.staged or ()] == [
        ("out/made", None)
    ] and ended.undeclared == ()


def by_rename(path: Path) -> None:
    os.rename(path, path.with_name("before"))
    if path.suffix:
        path.write_text("new")
    else:
        path.mkdir()


def by_link(path: Path) -> None:
    os.rename(path, path.with_name("other"))
    path.symlink_to("other")


@pytest.mark.parametrize(("place", "replace"), [("in.txt", by_rename), ("data", by_rename), ("out", by_link)])
async def test_what_was_replaced_since_is_shown_as_it_is_now(
    bench: Bench, held: list[int], place: str, replace: Callable[[Path], None]
) -> None:
    """As editors save. A view shows files, not names: the one that waits is given up, and the next is right again."""
    (bench.root / "data").mkdir()

    def order() -> RunOrder:
        return strictly(bench, "cat in.txt; ls data; echo done > out/done", reads=("in.txt", "data/*"))

    view = await ready(bench, order())
    space = space_of(view, held)
    replace(bench.root / place)
    (bench.root / "data/a.csv").write_text("a")
    ended = await bench.run(order())
    found, told = said(bench, ended)
    words = (bench.root / "in.txt").read_bytes() + b"a.csv\n"
    assert found != space and (ended.exit_code, told) == (0, words), told
    await eventually_async(lambda: is_gone(view))
    assert said(bench, await run_waited(bench, order, held))[1] == words


async def test_what_came_beside_outputs_is_seen(bench: Bench, held: list[int]) -> None:
    """It is shown one by one, so it must have been there when the view was made."""
    changes = {"reads": ("out/*.csv",), "writes": ("out/*.txt",)}
    space = space_of(await ready(bench, strictly(bench, "true", **changes)), held)
    (bench.root / "out/a.csv").write_text("beside")
    ended = await bench.run(strictly(bench, "cat out/a.csv && echo x > out/a.txt", **changes))
    found, told = said(bench, ended)
    assert found != space and told == b"beside"
    assert [output.path for output in ended.staged or ()] == ["out/a.txt"] and ended.undeclared == ()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root could read the secrets of /etc in the first place")
async def test_a_secret_of_etc_that_was_replaced_is_hidden_again(bench: Bench) -> None:
    """What lay on top of it went with the old file. In a copy of /etc, which is the daemon's alone."""
    copy = bench.folder / "etc"
    subprocess.run(["cp", "-a", "/etc", copy], check=True)
    (copy / "secret").touch(0o600)
    (copy / "secret").write_text("told")
    with Daemon(bench, "unshare", "--mount", "sh", "-c", f'mount --bind {copy} /etc && exec "$@"', "sh") as daemon:
        script = "cat /etc/secret > $WAKEFUL_SCRATCH/$WAKEFUL_RUN 2>&1 || true"
        first, second = (strictly(bench, script) for _ in range(2))
        waits = daemon.run(first)
        assert "etc/secret" in Path(f"/proc/{waits.pids[-1]}/mountinfo").read_text()
        (copy / "new").touch(0o600)
        (copy / "new").write_text("told")
        (copy / "new").rename(copy / "secret")
        assert "etc/secret" not in Path(f"/proc/{waits.pids[-1]}/mountinfo").read_text()
        daemon.run(second)
    for order in (first, second):
        assert "Permission denied" in (bench.state / "scratch" / order.run_id).read_text()


@pytest.mark.parametrize("changes", [{"reads": ()}, {"network": True}, {"writes": ("out/*", "more/*")}, {"cwd": "out"}])
async def test_a_run_that_is_to_see_something_else_is_launched_as_ever(
    bench: Bench, held: list[int], changes: dict[str, object]
) -> None:
    (bench.root / "more").mkdir()
    space = space_of(await ready(bench, strictly(bench, "true")), held)
    ended = await bench.run(strictly(bench, "true", **changes))
    assert ended.exit_code == 0 and said(bench, ended)[0] != space, bench.output(ended)


@pytest.mark.parametrize("which", [0, 1, 2])
async def test_one_that_was_killed_meanwhile_is_not_waited_for(bench: Bench, which: int) -> None:
    """By hand, or for want of memory: the next run begins all the same, and nothing is left."""
    view = await ready(bench, strictly(bench, "true"))
    os.kill(view.pids[which], signal.SIGKILL)
    await eventually_async(lambda: not bench.is_alive(view.pids[which]))
    assert (await bench.run(strictly(bench, "true"))).exit_code == 0
    await eventually_async(lambda: bench.runner.tidy() or is_gone(view))


async def test_only_those_that_ran_last_wait_and_none_when_the_daemon_stops(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is given up leaves no process, no folder and no descriptor."""
    monkeypatch.setattr(waiting, "MOST_READY", 2)
    await ready(bench, strictly(bench, "true"))
    await bench.runner._around.views.close()
    before = len(os.listdir("/proc/self/fd"))
    views = [await ready(bench, strictly(bench, "true", session=f"s-{number}")) for number in range(4)]
    await eventually_async(lambda: is_gone(views[0]) and is_gone(views[1]))
    assert all(bench.is_alive(pid) for view in views[2:] for pid in view.pids)
    assert sorted(path.name for path in (bench.state / "staged.next").iterdir()) == ["s-2", "s-3"]
    await bench.runner._around.views.close()
    assert all(map(is_gone, views))
    assert not list((bench.state / "staged.next").iterdir()) and not list((bench.state / "runs").glob("*.next"))
    await eventually_async(lambda: len(os.listdir("/proc/self/fd")) <= before)


async def test_none_waits_for_a_spec_that_is_gone_nor_for_long(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it shows is held meanwhile: a disk that somebody wants to take out."""
    view = await ready(bench, strictly(bench, "true"))
    bench.runner.unready("s-1")
    await eventually_async(lambda: is_gone(view))
    monkeypatch.setattr(waiting, "_LONGEST_SECONDS", 0.5)
    view = await ready(bench, strictly(bench, "true"))
    await eventually_async(lambda: is_gone(view))
    assert (await bench.run(strictly(bench, "true"))).exit_code == 0


async def test_nothing_runs_when_the_daemon_is_killed(bench: Bench) -> None:
    """The shell reads an end where its orders would come from, and ends."""
    with Daemon(bench) as daemon:
        waits = daemon.run(strictly(bench, "echo ran >> $WAKEFUL_SCRATCH/ran"))
        assert len(waits.pids) == 3 and all(bench.is_alive(pid) for pid in waits.pids)
    await eventually_async(lambda: not any(bench.is_alive(pid) for pid in waits.pids))
    assert (bench.state / "scratch/ran").read_text() == "ran\n"


@pytest.mark.parametrize(
    ("left", "is_done"),
    [(b"", True), (b"\n}\n", False), (b" </dev/null\n}\n", False), (b"'touch' 'ran' </dev/null\n}\n", False)],
)
async def test_orders_that_were_cut_short_are_not_carried_out(bench: Bench, left: bytes, is_done: bool) -> None:
    """The daemon died in the middle of them."""
    view = await ready(bench, strictly(bench, "true", cwd=str(bench.state / "scratch")))
    words = waiting._spell(view._shell, ("touch", "ran"), {"PATH": os.environ["PATH"]})
    assert words is not None and words.endswith(left)
    os.write(view._orders, words.removesuffix(left))
    bench.runner.unready("s-1")
    await eventually_async(lambda: is_gone(view))
    assert (bench.state / "scratch/ran").exists() == is_done


@pytest.mark.parametrize("failing", ["pipe", "pidfd_open"])
async def test_one_that_cannot_be_made_leaves_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """No descriptor is free, at whatever step."""
    order = strictly(bench, "true")
    places = waiting.NextPlaces(order)
    view = await asyncio.to_thread(
        preparing.prepare_next, order, {"PATH": os.environ["PATH"]}, places, bench.runner.protected
    )
    assert view is not None

    def fail(*_: object) -> None:
        raise OSError(errno.EMFILE, "no descriptor is free")

    before = len(os.listdir("/proc/self/fd")) - len(view._opened)
    with monkeypatch.context() as context, pytest.raises(OSError, match="no descriptor"):
        context.setattr(os, failing, fail)
        WaitingView(view, places, bench.children, str(bench.state))
    assert not os.path.exists(places.folder)
    # Other threads of this process open and close descriptors meanwhile; a leaked one stays.
    await eventually_async(lambda: len(os.listdir("/proc/self/fd")) <= before)


async def test_it_is_the_same_for_a_daemon_without_privileges(bench: Bench) -> None:
    """In a user namespace, which only who made it may look into."""
    if os.geteuid() != 0:
        pytest.skip("the other tests are without privileges already")
    orders = [
        strictly(bench, "readlink /proc/self/ns/pid >> $WAKEFUL_SCRATCH/spaces; cat in.txt && echo x > out/x")
        for _ in range(2)
    ]
    for above in (bench.state, *bench.state.parents):
        if above == Path("/tmp"):
            break
        above.chmod(0o755)
    for place in (bench.state, bench.root, *bench.root.iterdir()):
        os.chown(place, NOBODY, NOBODY)
    assert await asyncio.to_thread(_run_as_nobody, str(bench.state), orders) == 0
    spaces = (bench.state / "scratch/spaces").read_text().split()
    assert len(spaces) == 2 and spaces[1] == (bench.state / "waits").read_text().split()[0]


def _run_as_nobody(state: str, orders: list[RunOrder]) -> int:
    """The namespace that waits after each is noted in a file."""
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        with open(f"{state}/waits", "w") as notes:
            asyncio.run(run_each(state, orders, lambda waits: print(waits.space, file=notes, flush=True)))
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
