"""The end of a run is reported as it was, once, and with a message that helps."""

import asyncio
import errno
import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from wait_conditions import eventually_async
from wakeful.core.spec.session import Confinement
from wakeful.errors import InternalError
from wakeful.runners.process.children import become_subreaper
from wakeful.runners.process.problems import describe_start, spell_seconds

pytestmark = pytest.mark.asyncio
DAEMON = Path(__file__).with_name("daemon_to_kill.py")


async def test_exit_codes_are_reported_as_they_are(bench):
    for code in (0, 1, 7, 255):
        ended = await bench.run(bench.shell(f"exit {code}"))
        assert (ended.exit_code, ended.signal, ended.problem) == (code, None, None)
        assert (ended.session, ended.output.total_bytes) == ("s-1", 0)


async def test_a_program_ended_by_a_signal_is_reported_with_its_number(bench):
    ended = await bench.run(bench.shell("kill -SEGV $$"))
    assert (ended.exit_code, ended.signal, ended.problem) == (None, signal.SIGSEGV, None)


async def test_a_script_stops_at_the_first_failure_and_at_an_unset_variable(bench):
    assert (await bench.run(bench.shell("false\necho reached"))).exit_code == 1
    ended = await bench.run(bench.shell('echo "$NOBODY_SET_THIS"\necho reached'))
    assert ended.exit_code != 0
    assert b"reached" not in bench.output(ended)


async def test_every_run_is_reported_once_and_is_under_way_until_then(bench):
    order = bench.shell("exit 0")
    bench.start(order)
    bench.start(order)
    assert bench.runner.usage(order.run_id) is not None
    assert bench.reports == []
    await bench.end_of(order.run_id)
    assert bench.runner.usage(order.run_id) is None
    await bench.run(bench.shell("exit 0"))
    assert [report.run_id for report in bench.reports].count(order.run_id) == 1


async def test_a_run_out_of_time_is_ended_by_sigterm_and_says_so(bench):
    ended = await bench.run(bench.python("import time; time.sleep(60)", timeout_seconds=0.2))
    assert (ended.signal, ended.problem) == (signal.SIGTERM, "timed out after 200ms")


async def _time_out(bench, text, **changes):
    """Return the end of a timed-out run and its expected problem.

    The timeout grows until the script had the time to print `armed`.
    """
    for seconds in (0.5, 4, 32):
        ended = await bench.run(bench.shell(text, timeout_seconds=seconds, **changes))
        if bench.output(ended).startswith(b"armed\n"):
            return ended, f"timed out after {spell_seconds(seconds)}"
    raise AssertionError("it did not come so far in half a minute")


async def test_a_program_that_ignores_sigterm_is_killed_after_its_grace(bench):
    ended, problem = await _time_out(bench, "trap '' TERM\necho armed\nwhile :; do sleep 0.05; done", grace_seconds=0.2)
    assert (ended.signal, ended.problem) == (signal.SIGKILL, problem)


async def test_a_program_that_cleans_up_within_its_grace_is_not_killed(bench):
    ended, problem = await _time_out(
        bench, "trap 'echo cleaned; exit 3' TERM\necho armed\nwhile :; do sleep 0.02; done", grace_seconds=60
    )
    assert (ended.exit_code, ended.problem) == (3, problem)
    assert bench.output(ended).endswith(b"cleaned\n")


async def _armed(bench, order):
    run_id = bench.start(order)
    async for chunk in bench.runner.follow(run_id):
        assert b"armed" in chunk
        return run_id


@pytest.mark.parametrize(("how", "number"), [("interrupt", 2), ("terminate", 15), ("kill", 9)])
async def test_each_way_of_stopping_sends_its_signal(bench, how, number):
    run_id = await _armed(
        bench, bench.python("import signal; signal.signal(2, 0); print('armed', flush=True); signal.pause()")
    )
    bench.runner.stop(run_id, how, 30)
    bench.runner.stop(run_id, how, 30)
    ended = await bench.end_of(run_id)
    assert (ended.signal, ended.problem) == (number, None)


async def test_a_stop_that_is_ignored_becomes_a_kill_after_the_grace(bench):
    run_id = await _armed(bench, bench.shell("trap '' INT\necho armed\nwhile :; do sleep 0.05; done"))
    bench.runner.stop(run_id, "interrupt", 0.1)
    assert (await bench.end_of(run_id)).signal == signal.SIGKILL


async def test_a_stronger_stop_replaces_a_weaker_one_and_never_the_other_way_round(bench):
    run_id = await _armed(
        bench, bench.shell("trap '' INT\ntrap 'exit 4' TERM\necho armed\nwhile :; do sleep 0.02; done")
    )
    bench.runner.stop(run_id, "interrupt", 60)
    bench.runner.stop(run_id, "terminate", 60)
    bench.runner.stop(run_id, "interrupt", 0)
    assert (await bench.end_of(run_id)).exit_code == 4


async def test_stopping_a_run_that_is_not_there_does_nothing(bench):
    bench.runner.stop("never-started", "kill", 0)
    assert bench.runner.usage("never-started") is None


async def test_runs_of_a_daemon_that_was_started_in_the_background_can_be_interrupted(bench):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        become_subreaper()
        run_id = bench.start(bench.order("sleep", "600"))
        bench.runner.stop(run_id, "interrupt", 60)
        assert (await bench.end_of(run_id)).signal == signal.SIGINT
    finally:
        signal.signal(signal.SIGINT, before)


async def test_close_interrupts_every_run_and_waits_for_their_reports(bench):
    # No shell: dash defers a SIGINT that comes before its first command until that command has ended.
    ids = [bench.start(bench.order("sleep", "600")) for _ in range(3)]
    await bench.runner.close(60)
    assert sorted((report.run_id, report.signal) for report in bench.reports) == [
        (run_id, signal.SIGINT) for run_id in ids
    ]
    assert not os.listdir(bench.state / "runs")


# -- failed starts


async def test_a_missing_program_is_named_with_where_it_was_sought(bench):
    ended = await bench.run(bench.order("no-such-program-anywhere"))
    assert (ended.exit_code, ended.signal) == (None, None)
    assert "'no-such-program-anywhere': no such program in PATH (" in ended.problem
    ended = await bench.run(bench.order("./tools/missing"))
    assert f"'{bench.root}/./tools/missing' does not exist" in ended.problem


async def test_a_missing_folder_is_named_and_not_blamed_on_the_program(bench):
    ended = await bench.run(bench.order("true", cwd="not/there"))
    assert f"the folder '{bench.root}/not/there' does not exist; make it, or change 'cwd'" in ended.problem
    (bench.root / "page").touch()
    assert "is not a folder" in (await bench.run(bench.order("true", cwd="page"))).problem


def _program(path: Path, text: str, mode: int = 0o755) -> str:
    path.write_text(text)
    path.chmod(mode)
    return f"./{path.name}"


async def test_a_file_that_cannot_be_executed_says_what_to_do(bench):
    plain = _program(bench.root / "plain.py", "print(1)\n", 0o644)
    assert (
        f"chmod +x), or name its interpreter first, as in [python3, {plain}]"
        in (await bench.run(bench.order(plain))).problem
    )
    headless = _program(bench.root / "headless", "echo 1\n")
    assert "does not begin with '#!'" in (await bench.run(bench.order(headless))).problem
    astray = _program(bench.root / "astray", "#!/no/such/interpreter\n")
    assert "the interpreter named in the first line of" in (await bench.run(bench.order(astray))).problem


async def test_what_no_system_call_takes_is_a_reported_failure(bench):
    assert "null byte" in (await bench.run(bench.order("true", "a\0b"))).problem
    assert "environment" in (await bench.run(bench.order("true", env={"A=B": "c"}))).problem
    assert "too large" in (await bench.run(bench.order("true", "x" * 3_000_000))).problem


async def test_an_order_with_neither_or_both_of_argv_and_script_is_a_defect(bench):
    with pytest.raises(InternalError, match="either an argv or a script"):
        bench.order()
    with pytest.raises(InternalError, match="either an argv or a script"):
        bench.order("true", script="true")


async def test_running_out_of_descriptors_fails_the_run_and_leaves_nothing_running(bench):
    await bench.run(bench.shell("exit 0"))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # The test tries every number of free descriptors from none to enough, so that each call of a start fails once.
    held = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 12, hard))
        while True:
            try:
                held.append(os.open("/dev/null", os.O_RDONLY))
            except OSError:
                break
        # Threads of the previous run may have taken some descriptors.
        assert len(held) > 6
        while held:
            order = bench.shell("exit 0")
            bench.start(order)
            await asyncio.sleep(0)
            os.close(held.pop())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in held:
            os.close(fd)
    await eventually_async(lambda: not bench.under_way())
    assert any("run out of file descriptors (limit" in (report.problem or "") for report in bench.reports)
    assert (await bench.run(bench.shell("exit 0"))).exit_code == 0


async def test_a_system_that_gives_no_process_fails_the_run_in_words(bench, tmp_path):
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed: the fault cannot be injected")
    trace = tmp_path / "trace"
    # A failed vfork is tried again as fork, which is a clone. Threads use clone3 and are not affected.
    inject = ["-e", "trace=fork,vfork,clone", "-e", "inject=fork,vfork,clone:error=EAGAIN"]
    daemon = subprocess.Popen(
        [strace, "-f", "-qq", "-o", trace, *inject, sys.executable, DAEMON, bench.state],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    bench.children.spawned(daemon.pid)
    try:
        daemon.stdin.write(msgspec.json.encode([bench.order("true")]))
        daemon.stdin.close()
        assert daemon.stdout.readline() == b"started\n"
        reported = daemon.stdout.readline().decode()
    finally:
        # A signal to strace alone would leave it waiting for the process it traces.
        os.killpg(daemon.pid, signal.SIGKILL)
        daemon.wait()
        daemon.stdout.close()
        bench.children.gone(daemon.pid)
    assert "INJECTED" in trace.read_text()
    assert "the system refused a new process" in reported


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EAGAIN, "end some processes, or raise the limit of processes"),
        (errno.ENOMEM, "end some processes, or raise the limit of processes"),
        (errno.ENFILE, "run out of file descriptors"),
        (errno.ENOSPC, "not enough disk space for the run's folder"),
        (errno.EIO, "Input/output error at '/state/runs/1'"),
    ],
)
async def test_what_the_system_refuses_is_said_in_words_that_help(number, words):
    error = OSError(number, os.strerror(number), "/state/runs/1")
    assert words in describe_start(error, ["python3"], "/", {})


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.5, "500ms"), (1.5, "1.5s"), (90, "90s"), (300, "5m"), (7200, "2h"), (604800, "7d")]
)
async def test_durations_are_said_as_a_spec_would_say_them(seconds, words):
    assert spell_seconds(seconds) == words


# -- the check


async def test_a_check_decides_after_the_command_and_its_output_follows(bench):
    passed = await bench.run(
        bench.shell("echo made > made; echo work", check=("sh", "-c", "echo looked; test -f made"))
    )
    assert (passed.exit_code, passed.problem) == (0, None)
    assert bench.output(passed) == b"work\n--- check: sh -c 'echo looked; test -f made'\nlooked\n"

    failed = await bench.run(bench.shell("echo work", check=("sh", "-c", "echo no >&2; exit 6")))
    assert (failed.exit_code, failed.problem) == (
        6,
        "the check \"sh -c 'echo no >&2; exit 6'\" exited with 6; the run counts as failed",
    )
    assert bench.output(failed).endswith(b"no\n")


async def test_a_check_sees_what_the_run_saw_and_is_not_asked_about_a_failed_run(bench):
    same = await bench.run(bench.shell("env | sort > before", check=("sh", "-c", "env | sort > after")))
    assert (same.exit_code, same.problem) == (0, None)
    before, after = ((bench.root / name).read_text().splitlines() for name in ("before", "after"))
    ignored = ("_=", "PWD=", "OLDPWD=", "SHLVL=")
    assert [line for line in before if not line.startswith(ignored)] == [
        line for line in after if not line.startswith(ignored)
    ]

    failed = await bench.run(bench.shell("exit 1", check=("touch", "asked")))
    assert (failed.exit_code, failed.problem) == (1, None)
    assert not (bench.root / "asked").exists()


async def test_a_check_that_cannot_start_or_takes_too_long_fails_the_run(bench):
    missing = await bench.run(bench.shell("exit 0", check=("no-such-check",)))
    assert "cannot start 'no-such-check'" in missing.problem
    slow = await bench.run(bench.shell("exit 0", check=("sleep", "60"), timeout_seconds=0.3))
    assert (slow.signal, slow.problem) == (signal.SIGTERM, "timed out after 300ms")


async def test_a_stop_reaches_the_check(bench):
    run_id = bench.start(bench.shell("exit 0", check=("sh", "-c", "echo $$ > checking; exec sleep 60")))
    await bench.number_in("checking")
    bench.runner.stop(run_id, "terminate", 5)
    ended = await bench.end_of(run_id)
    assert (ended.signal, ended.problem) == (signal.SIGTERM, None)


async def test_the_private_folder_is_removed_and_the_scratch_folder_is_kept(bench):
    order = bench.shell('echo kept > "$WAKEFUL_SCRATCH/notes"; mkdir -p "${WAKEFUL_CAUSES%/*}/deep/er"')
    await bench.run(order)
    await eventually_async(lambda: not os.path.exists(order.folder))
    scratch = Path(order.scratch)
    assert (scratch / "notes").read_text() == "kept\n"
    assert stat.S_IMODE(scratch.stat().st_mode) == 0o700


@pytest.mark.parametrize("level", ["standard", "strict"])
async def test_a_defect_before_a_run_begins_ends_it_with_words(bench, level):
    """A run that stops halfway in the daemon would stay under way for ever.

    The run fails with a message, and the loop's exception handler gets the traceback.
    """
    told = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, what: told.append(what))
    ended = await bench.run(bench.shell("echo never", reads=(None,), confinement=Confinement(level=level)))
    assert ended.exit_code is None and "a defect of wakeful" in ended.problem
    await eventually_async(lambda: told and "exception" in told[0], what="the traceback")


async def test_a_defect_when_a_run_ended_loses_its_output_and_not_its_end(bench):
    """The end of a process is reported even if saving its output fails."""

    class Defective(type(bench.blobs)):
        def put(self, content):
            raise RuntimeError("a defect on purpose")

    bench.blobs.__class__ = Defective
    asyncio.get_running_loop().set_exception_handler(lambda loop, what: None)
    ended = await bench.run(bench.shell("echo said"))
    assert ended.exit_code == 0 and "RuntimeError: a defect on purpose" in ended.problem
