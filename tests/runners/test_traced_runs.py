"""Traced runs with the real strace: their denials are found, and they end as they would without the trace."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path

import pytest

from runners.conftest import Bench
from wait_conditions import eventually_async
from wakeful.core.record.observations import Denied, ProcessEnded
from wakeful.core.spec.session import Confinement, RunLimits
from wakeful.runners.contract import RunOrder
from wakeful.runners.isolation import trace as tracing
from wakeful.runners.isolation.bubblewrap import find_obstacle as find_strict_obstacle
from wakeful.runners.isolation.confined_spawn import Grant, Policy
from wakeful.runners.isolation.landlock import READ, probe_abi
from wakeful.runners.isolation.reach import Reach
from wakeful.runners.isolation.reach_check import Judge, JudgedRun
from wakeful.runners.isolation.strace import Asked

OBSTACLE = tracing.find_obstacle() if probe_abi() else "this kernel has no Landlock"
pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.skipif(OBSTACLE is not None, reason=f"nothing can be traced here: {OBSTACLE}"),
]
STRICT = find_strict_obstacle()


def traced(bench: Bench, script: str, *, level: str = "standard", **changes: object) -> RunOrder:
    """Return an order for a traced run that reads `in.txt` and writes `out/`."""
    (bench.root / "in.txt").write_text("in")
    (bench.root / "out").mkdir(exist_ok=True)
    network = changes.pop("network", False)
    confinement = Confinement(level=level, network=network)
    values = {
        "reads": ("in.txt",),
        "writes": ("out/**",),
        "confinement": confinement,
        "is_traced": True,
        "cwd": str(bench.root),
        "staging": str(bench.state / "staged"),
    }
    return bench.shell(script, **(values | changes))


def found(ended: ProcessEnded) -> set[tuple[str, str]]:
    assert ended.trace is not None and ended.trace.words is None, ended.trace
    return {(one.access, one.what) for one in ended.trace.denied}


def one(ended: ProcessEnded, what: str | Path) -> Denied:
    assert ended.trace is not None
    return next(denied for denied in ended.trace.denied if denied.what == str(what))


@pytest.mark.parametrize("level", ["standard", "observe", "none"])
async def test_everything_outside_its_reach_is_found_and_nothing_inside(bench: Bench, level: str) -> None:
    """Files are read, made, removed, renamed and run, also by a relative path from another folder.

    Each access is found, whether it was denied or only observed.
    """
    (bench.root / "module").write_text("x")
    (bench.root / "tool").write_text("#!/bin/sh\n")
    (bench.root / "tool").chmod(0o755)
    (bench.root / "old").write_text("x")
    (bench.root / "gone").write_text("x")
    (bench.folder / "beside").write_text("x")
    script = (
        """
        cat in.txt > out/copy; mv out/copy out/moved; echo scratch > "$TMPDIR/a"; ls /usr > /dev/null; cat /etc/passwd > /dev/null
        cat module; "$PWD"/to""ol; mkdir made; mv old out/new; rm -f gone; (cd out && cat ../../beside); cat missing; exit 7
    """.replace("\n", ";")
        .replace(";;", ";")
        .strip("; ")
    )
    ended = await bench.run(traced(bench, f"set +e; {script}", level=level))
    assert ended.exit_code == 7 and ended.problem is None
    names = {"read": ("module", "../beside"), "run": ("tool",), "write": ("made", "old", "gone")}
    # If the tool may be run, its interpreter also reads it.
    names["read"] += () if level == "standard" else ("tool",)
    assert found(ended) == {
        (access, os.path.normpath(bench.root / name)) for access, paths in names.items() for name in paths
    }
    assert ended.trace is not None and ended.trace.is_observed == (level != "standard")
    assert (bench.root / "gone").exists() == (level == "standard"), "observed, nothing is denied"


@pytest.mark.skipif(STRICT is not None, reason=f"nothing can be isolated strictly here: {STRICT}")
async def test_what_a_strict_run_does_not_see_is_found(bench: Bench) -> None:
    """In a strict view the file is missing rather than denied."""
    (bench.root / "module").write_text("x")
    (bench.folder / "beside").write_text("x")
    ended = await bench.run(
        traced(bench, "set +e; cat in.txt module missing ../beside; echo x > out/a; exit 3", level="strict")
    )
    assert ended.exit_code == 3
    assert found(ended) == {("read", str(bench.root / "module")), ("read", str(bench.folder / "beside"))}


async def test_addresses_are_found_where_they_can_be(bench: Bench) -> None:
    """Without a network the address is unknown.

    With a list of ports the closed ones are found, and when observed all of them.
    """
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_server(("127.0.0.1", 0)) as other:
        ports = server.getsockname()[1], other.getsockname()[1]
        text = f"import socket; [socket.socket().connect_ex(('127.0.0.1', port)) for port in {ports}]"
        script = f'{sys.executable} -c "{text}" || true'
        shut, listed, seen = [
            await bench.run(traced(bench, script, level=level, network=network))
            for level, network in (("standard", False), ("standard", (f"localhost:{ports[0]}",)), ("observe", False))
        ]
    addresses = [f"127.0.0.1:{port}" for port in ports]
    assert ("connect", "the network") in found(shut)
    assert {what for access, what in found(listed) if access == "connect"} == {addresses[1]}
    assert {what for access, what in found(seen) if access == "connect"} == set(addresses)


async def test_secrets_and_what_is_shared_come_without_a_line_to_paste(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deceived program asks for keys. The trace reports it, and offers no line that allows it."""
    monkeypatch.setenv("HOME", str(bench.folder / "home"))
    key = bench.folder / "home" / ".ssh" / "id_ed25519"
    key.parent.mkdir(parents=True)
    key.write_text("PRIVATE")
    (bench.folder / "home" / "plain").write_text("x")
    script = f"set +e; cat {key} {key.parent.parent}/plain /etc/shadow; ls /root /; echo x > /var/tmp/elsewhere; echo x > /dev/shm/wakeful-lock; exit 1"
    ended = await bench.run(traced(bench, script))
    assert one(ended, key).place is None and "secrets" in str(one(ended, key).words)
    assert one(ended, "/etc/shadow").place is None
    assert one(ended, "/").place is None and one(ended, "/root").place is None
    assert "$TMPDIR" in str(one(ended, "/var/tmp/elsewhere").words)
    assert one(ended, "/dev/shm/wakeful-lock").place == "/dev/shm", "what multiprocessing needs is opened as a whole"
    assert one(ended, key.parent.parent / "plain").place == str(key.parent.parent / "plain")


async def test_it_ends_as_it_would_have(bench: Bench) -> None:
    """The exit code, signal, output, check and limits are the same. Leftover processes end with the run."""
    ended = await bench.run(traced(bench, "echo said; kill -SEGV $$"))
    assert (ended.exit_code, ended.signal, bench.output(ended)) == (None, 11, b"said\n")
    ended = await bench.run(traced(bench, "setsid sleep 1000 & echo $! > out/left; exit 5"))
    assert (ended.exit_code, ended.signal) == (5, None)
    assert not bench.is_alive(await bench.number_in("out/left"))
    (bench.root / "beside").write_text("x")
    (bench.folder / "beside").write_text("x")
    ended = await bench.run(traced(bench, "true", check=("cat", "./beside"), limits=RunLimits(open_files=64)))
    assert ended.problem is None, "a check may read what it names"
    ended = await bench.run(traced(bench, "true", check=("sh", "-c", "cat ../beside"), limits=RunLimits(open_files=64)))
    assert "the check" in str(ended.problem) and found(ended) == {("read", str(bench.folder / "beside"))}
    ended = await bench.run(traced(bench, "exec sleep 1000", timeout_seconds=0.5, grace_seconds=0.2))
    assert ended.problem == "timed out after 500ms"


async def test_a_stop_reaches_the_program_and_not_its_tracer(bench: Bench) -> None:
    """The last accesses of an interrupted program are still found."""
    order = traced(bench, "trap 'cat ../beside || exit 9' INT; echo ready > out/ready; while :; do sleep 0.05; done")
    (bench.folder / "beside").write_text("x")
    run = bench.start(order)
    await eventually_async((bench.root / "out" / "ready").exists)
    bench.runner.stop(run, "interrupt", 60)
    ended = await bench.end_of(run)
    assert ended.exit_code == 9 and ("read", str(bench.folder / "beside")) in found(ended)


@pytest.mark.parametrize("number", ["KILL", pytest.param("STOP", marks=pytest.mark.long)])
async def test_a_program_that_ends_or_stops_its_tracer_ends_all_the_same(bench: Bench, number: str) -> None:
    """A run may signal its tracer, which has the same rights, and gains nothing by it."""
    script = f"kill -{number} $(sed -n 's/^TracerPid:.//p' /proc/$$/status); exit 6"
    ended = await bench.run(
        traced(bench, f"set +e; {script}", timeout_seconds=3.0 if number == "STOP" else 60.0, grace_seconds=0.2)
    )
    # A stopped tracer stops the program, too, and the run ends by its timeout.
    expected = (6, None) if number == "KILL" else (None, "timed out after 3s")
    assert (ended.exit_code, ended.problem) == expected


async def test_what_it_finds_is_bounded(bench: Bench) -> None:
    """A program that asks for thousands of files fills neither the record nor the memory."""
    (bench.root / "ask.py").write_text(
        f"for n in range(3000):\n  try: open('{bench.folder}/x%04d' % n, 'w')\n  except OSError: pass\n"
    )
    ended = await bench.run(traced(bench, f"{sys.executable} ask.py"))
    assert ended.trace is not None
    assert len(ended.trace.denied) == 200 and ended.trace.more >= 2800


@pytest.mark.long
async def test_a_program_that_floods_its_trace_is_not_listened_to_for_ever(bench: Bench) -> None:
    """The program is not stopped, but the cost to the daemon is bounded.

    The record says that the trace is incomplete.
    """
    script = r"""
        for fd in /proc/self/fd/*; do
            case "$(readlink $fd)" in pipe:*) n=${fd##*/}; [ "$n" -gt 2 ] && { yes '9 mkdir("/x", 0) = 0' | head -c 8000000; } > /proc/self/fd/$n;; esac
        done; exit 2
    """
    ended = await bench.run(traced(bench, script))
    assert ended.exit_code == 2 and ended.trace is not None and "more than could be checked" in str(ended.trace.words)


async def test_names_that_are_no_text_can_be_recorded(bench: Bench) -> None:
    """Bytes that are not UTF-8 and control characters are shown as escapes. Such names are never offered for a spec."""
    names = [b"\xff\xfe", b"a\nb", b"\x1b[2J", b'q") = -1 EACCES (x', "ü n".encode()]
    for name in names:
        Path(os.fsdecode(os.fsencode(bench.folder) + b"/" + name)).write_text("x")
    ended = await bench.run(traced(bench, _cat_all(bench, names)))
    assert ended.trace is not None
    told = {Path(denied.what).name: denied.place for denied in ended.trace.denied if denied.access == "read"}
    assert told.pop("ü n") == f"{bench.folder}/ü n"
    assert told.pop('q") = -1 EACCES (x') == f'{bench.folder}/q") = -1 EACCES (x'
    assert told == {"\\xff\\xfe": None, "a\\nb": None, "\\x1b[2J": None}


def _cat_all(bench: Bench, names: list[bytes]) -> str:
    paths = "".join("\\0%03o" % byte for name in names for byte in os.fsencode(bench.folder) + b"/" + name + b"\0")
    return f"printf '%b' '{paths}' | xargs -0 cat; exit 1"


async def test_what_a_program_writes_into_the_trace_itself_does_no_harm(bench: Bench) -> None:
    """The program holds the pipe of the trace, too.

    Half lines, endless lines and false lines harm neither the run nor the record.
    """
    script = r"""
        for fd in /proc/self/fd/*; do
            case "$(readlink $fd)" in pipe:*) n=${fd##*/}; [ "$n" -gt 2 ] && { head -c 300000 /dev/zero; printf '\n99 openat(AT_FDCWD, "/root/lie", O_RDONLY) = -1 EACCES (x)\n99 openat(((([[[\n99 <... x resumed>'; } > /proc/self/fd/$n;; esac
        done; exit 2
    """
    ended = await bench.run(traced(bench, script))
    assert ended.exit_code == 2 and ended.trace is not None


async def test_without_strace_a_trace_does_not_run_and_what_is_observed_does(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each case says why, and which package to install."""
    monkeypatch.setattr(tracing, "PROGRAM", "no-such-strace")
    ended = await bench.run(traced(bench, "echo ran"))
    assert "apt install strace" in str(ended.problem) and not bench.output(ended)
    ended = await bench.run(traced(bench, "echo ran", level="observe", is_traced=False))
    assert (ended.problem, bench.output(ended)) == (None, b"ran\n")
    assert ended.trace is not None and ended.trace.is_observed and "apt install strace" in str(ended.trace.words)


async def test_a_program_that_is_not_there_is_told_as_ever(bench: Bench) -> None:
    """The message is not that of strace."""
    ended = await bench.run(bench.order("no-such-program", is_traced=True))
    assert "no such program in PATH" in str(ended.problem)


async def test_what_the_system_denies_anyway_comes_without_a_line_to_paste(bench: Bench) -> None:
    """The file is within the run's reach, so no spec would help: its owner or its mode denies it."""
    standards = JudgedRun(
        Reach(policy=Policy(grants=(Grant(str(bench.root), READ),)), unenforced=()),
        str(bench.root),
        has_view=False,
        is_observed=False,
    )
    judge = Judge(standards)
    inside, outside = (
        Asked(access="read", what=str(folder / "x"), error="EACCES") for folder in (bench.root, bench.folder)
    )
    (bench.root / "x").write_text("x")
    (bench.folder / "x").write_text("x")
    assert (denied := judge.judge(inside)) is not None and denied.place is None and "owner, mode" in str(denied.words)
    assert (denied := judge.judge(outside)) is not None and denied.place == str(bench.folder / "x")
    assert judge.judge(Asked(access="write", what=str(bench.root / "x"), error="EXDEV", is_shared=True)) is not None


@pytest.mark.parametrize("number", [0, 9])
async def test_a_run_that_somebody_else_traces_ends_with_its_own_exit_code(bench: Bench, number: int) -> None:
    """A person's debugger is told of the end before the daemon. The daemon still gets the exit code."""
    os.mkfifo(bench.root / "go")
    run = bench.start(bench.shell(f"echo $$ > pid; read line < go; exit {number}", cwd=str(bench.root)))
    pid = await bench.number_in("pid")
    watcher = await asyncio.create_subprocess_exec(
        "strace", "-p", str(pid), "-o", "/dev/null", stderr=asyncio.subprocess.PIPE
    )
    assert watcher.stderr is not None and b"attached" in await watcher.stderr.readline()
    (bench.root / "go").write_text("go\n")
    ended = await bench.end_of(run)
    await watcher.wait()
    assert (ended.exit_code, ended.problem) == (number, None)


async def test_a_run_that_is_not_traced_knows_nothing_of_it(bench: Bench) -> None:
    """The run has no strace and no trace in its record."""
    (bench.folder / "beside").write_text("x")
    ended = await bench.run(traced(bench, "cat ../beside; exit 1", is_traced=False))
    assert ended.trace is None and f"denied reading {bench.folder}/beside" in str(ended.hint)
