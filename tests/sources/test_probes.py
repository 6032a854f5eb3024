"""Probes with real commands that behave well and badly.

Every ending is a version or a problem with a message, and no process remains.
"""

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from process_state import is_alive
from sources.timed_loop import TimedLoop
from wait_conditions import eventually_async
from wakeful.core.looking.targets import ProbeTarget
from wakeful.core.record.observations import LookResult, TargetLooked, TargetsHinted
from wakeful.sources.checks import probes
from wakeful.sources.checks.probes import ProbeSource

pytestmark = pytest.mark.asyncio


@asynccontextmanager
async def launch(target: ProbeTarget) -> AsyncIterator[subprocess.Popen[bytes]]:
    """A stand-in for the runner, which would confine the probe (tests/runners/test_probe_launch.py)."""
    pipe = subprocess.PIPE
    yield subprocess.Popen(
        target.argv, cwd=target.root, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, start_new_session=True
    )


class Prober:
    """A stand-in for the reactor."""

    def __init__(self, root: Path, **options: object) -> None:
        self.root = root
        self.looked: list[LookResult] = []
        self.hinted: list[str] = []
        self.loop = TimedLoop()
        self.source = ProbeSource(self._take, self.loop, launch, **options)

    async def __aenter__(self) -> "Prober":
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.source.close()

    def _take(self, observation: TargetsHinted | TargetLooked) -> None:
        if isinstance(observation, TargetLooked):
            self.looked.append(observation.result)
        else:
            self.hinted += observation.targets

    def follow(
        self, *argv: str, every: float = 300.0, timeout: float = 60.0, key: str | None = None, root: Path | None = None
    ) -> str:
        key = key or " ".join(argv)
        target = ProbeTarget(
            key=key, root=str(root or self.root), argv=argv, check_every_seconds=every, timeout_seconds=timeout
        )
        self.source.follow([target])
        return key

    async def look(self, key: str) -> LookResult:
        count = len(self.looked)
        self.source.look(key, count + 1)
        await eventually_async(lambda: len(self.looked) > count)
        assert self.looked[-1].generation == count + 1
        return self.looked[-1]


async def test_the_version_is_a_digest_of_standard_output(tmp_path: Path) -> None:
    """The same output has the same version, another output another version. An empty output has a version, too."""
    (tmp_path / "value").write_text("1")
    async with Prober(tmp_path) as prober:
        key = prober.follow("cat", "value")
        first = await prober.look(key)
        assert first.problem is None
        assert (await prober.look(key)).version == first.version
        (tmp_path / "value").write_text("2")
        assert (await prober.look(key)).version not in (None, first.version)
        (tmp_path / "value").write_text("")
        assert (await prober.look(key)).version not in (None, first.version)


async def test_arguments_reach_the_command_as_they_are(tmp_path: Path) -> None:
    """No shell reads the arguments."""
    async with Prober(tmp_path) as prober:
        await prober.look(prober.follow("echo", "$(touch canary)", ";touch canary", "`touch canary`", "*"))
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("sh", "-c", "echo the reason >&2; exit 3"), "exit code 3: the reason"),
        (("sh", "-c", "echo 1; exit 1"), "exit code 1"),
        (("sh", "-c", "kill -KILL $$"), "signal SIGKILL"),
        (("no-such-program",), "was not found"),
        (("./no-such-script",), "was not found"),
        (("/",), "could not be started"),
        (("cat", "a\0b"), "could not be started"),
        (("sh", "-c", "printf '\\033]0;title\\007' >&2; exit 1"), "\ufffd]0;title"),
        (("sh", "-c", "head -c 2000000 /dev/zero"), "printed more than"),
    ],
)
async def test_what_does_not_succeed_is_unknown_with_words(tmp_path: Path, argv: tuple[str, ...], words: str) -> None:
    """An unknown result is not a version: it wakes no session, and its problem gives the reason."""
    async with Prober(tmp_path) as prober:
        result = await prober.look(prober.follow(*argv))
        assert result.version is None
        assert words in result.problem


async def test_a_vanished_root_is_unknown(tmp_path: Path) -> None:
    """The problem names the folder, not the program."""
    async with Prober(tmp_path) as prober:
        result = await prober.look(prober.follow("true", root=tmp_path / "gone"))
        assert "gone is not there" in result.problem


async def test_long_complaints_are_kept_by_their_end(tmp_path: Path) -> None:
    """The last lines matter most, and a flood of output is not kept."""
    async with Prober(tmp_path) as prober:
        result = await prober.look(
            prober.follow("sh", "-c", "yes noise | head -c 3000000 >&2; echo the end >&2; exit 1")
        )
        assert result.problem.endswith("the end")
        assert len(result.problem) < 700


async def test_a_probe_that_hangs_is_ended_with_everything_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All its processes ignore SIGTERM, so the whole group is killed."""
    monkeypatch.setattr(probes, "GRACE_SECONDS", 0.1)
    script = "trap '' TERM; sleep 300 & echo $$ $! > pids; while :; do sleep 300; done"
    async with Prober(tmp_path) as prober:
        pids = (await hang(prober, "pids", script)).split()
        assert len(pids) == 2
        await eventually_async(lambda: not any(is_alive(int(pid)) for pid in pids))


async def test_what_a_probe_leaves_in_its_group_does_not_outlive_the_look(tmp_path: Path) -> None:
    """A background process that does not hold our pipes would otherwise go unnoticed."""
    async with Prober(tmp_path) as prober:
        result = await prober.look(prober.follow("sh", "-c", "sleep 300 >/dev/null 2>&1 & echo $! > pid; echo done"))
        assert result.version is not None
        pid = (tmp_path / "pid").read_text().strip()
        await eventually_async(lambda: not is_alive(int(pid)))


async def test_a_grandchild_that_left_the_group_with_our_pipe_does_not_hold_the_look(tmp_path: Path) -> None:
    """The look ends at its timeout, although another process still holds the other end of the pipe."""
    async with Prober(tmp_path) as prober:
        pid = await hang(prober, "pid", "setsid sh -c 'echo $$ > pid; exec sleep 300' & echo done")
        os.kill(int(pid), signal.SIGKILL)


async def hang(prober: Prober, name: str, script: str) -> str:
    """Return the text that the script wrote to this file before its look timed out.

    The timeout grows until the script gets that far.
    """
    for seconds in (0.5, 4.0, 32.0):
        result = await prober.look(prober.follow("sh", "-c", script, timeout=seconds, key=f"{seconds} s"))
        assert f"did not end within {seconds:g} s" in result.problem
        if (prober.root / name).exists() and (text := (prober.root / name).read_text().strip()):
            return text
    raise AssertionError("it did not come so far in half a minute")


async def test_only_a_few_run_at_once(tmp_path: Path) -> None:
    """The others wait for a slot, and all are answered."""
    async with Prober(tmp_path, at_once=2) as prober:
        script = "mkdir $0 && ls -d run-* | wc -l >> counts; sleep 0.1; rmdir $0; echo $0"
        keys = [prober.follow("sh", "-c", script, f"run-{number}") for number in range(6)]
        for key in keys:
            prober.source.look(key, 1)
        await eventually_async(lambda: len(prober.looked) == 6)
        assert all(result.version for result in prober.looked)
        assert max(int(count) for count in (tmp_path / "counts").read_text().split()) <= 2


async def test_each_probe_hints_itself_again_and_again(tmp_path: Path) -> None:
    """The first hint comes after a fraction of check_every that depends only on the key.

    Later ones come once per check_every, and none after forget.
    """
    async with Prober(tmp_path) as prober:
        quick, slow = prober.follow("true", every=0.1), prober.follow("false", every=300.0)
        begun = time.monotonic()
        await eventually_async(lambda: prober.hinted.count(quick) >= 4)
        assert time.monotonic() - begun >= 0.2
        assert slow not in prober.hinted
        prober.source.forget([quick, "unknown"])
        prober.hinted.clear()
        other = prober.follow("true", every=0.2, key="other")
        await eventually_async(lambda: prober.hinted.count(other) >= 2)
        assert quick not in prober.hinted


async def test_ten_thousand_probes_at_rest_are_one_timer(tmp_path: Path) -> None:
    """There is no asyncio object per probe."""
    async with Prober(tmp_path) as prober:
        before = len(asyncio.all_tasks())
        for number in range(10_000):
            prober.follow("true", key=f"probe {number}", every=3600.0)
        assert len(asyncio.all_tasks()) == before
        assert len(prober.loop.pending) == 1


async def test_a_forgotten_probe_is_ended_and_reports_nothing(tmp_path: Path) -> None:
    """This holds also in the middle of its run."""
    async with Prober(tmp_path) as prober:
        key = prober.follow("sh", "-c", "echo $$ > pid; sleep 300")
        prober.source.look(key, 1)
        pid = await eventually_async(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip())
        prober.source.forget([key])
        await eventually_async(lambda: not is_alive(int(pid)))
        assert prober.looked == []


async def test_closing_ends_what_runs(tmp_path: Path) -> None:
    """The daemon may stop while probes run."""
    prober = Prober(tmp_path)
    key = prober.follow("sh", "-c", "echo $$ > pid; sleep 300")
    prober.source.look(key, 1)
    pid = await eventually_async(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip())
    await prober.source.close()
    assert not is_alive(int(pid))
    assert os.path.isdir(tmp_path)
