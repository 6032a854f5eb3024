"""The part of `doctor` that checks the machine around a daemon: systemd, the clock, git, bubblewrap and the kernel's
limits.

Each check is a line with the command that repairs the problem. Nothing is changed. The checks use only the kernel,
/proc and the programs themselves, so they also work on a machine without systemd or a bus.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from wakeful import __version__
from wakeful.cli.systemd_units import SYSTEM_FOLDER, SYSTEM_SERVICE, USER_SERVICE, find_version, user_folder
from wakeful.cli.verbs.doctor_store import Check
from wakeful.cli.verbs.install import is_lingering
from wakeful.system.installation import has_agents, offer_agents

INOTIFY = Path("/proc/sys/fs/inotify")
# The first git with GIT_CONFIG_GLOBAL, which keeps a person's configuration out of the daemon's git commands.
OLDEST_GIT = (2, 32)
# 2026-01-01, UTC. wakeful is younger, so a clock that shows an earlier time is wrong.
EARLIEST_SECONDS = 1_767_225_600
# Seconds by which a file's time may be ahead of the clock without a warning.
AHEAD_SECONDS = 60.0
# The state that adjtimex(2) returns for a clock that is not synchronised.
TIME_ERROR = 5
TIMEX_BYTES = 512
SET_CLOCK = "sudo timedatectl set-ntp true"
PATIENCE_SECONDS = 10.0
# A bubblewrap command with the options that runs need.
TRY_BUBBLEWRAP = (
    "--unshare-all",
    "--die-with-parent",
    "--ro-bind",
    "/",
    "/",
    "--proc",
    "/proc",
    "--dev",
    "/dev",
    "true",
)


def check_surroundings(pid: int | None, state: Path) -> Iterator[Check]:
    """Check the machine. `pid` is that of the daemon that answers. None if no daemon answers."""
    yield from check_service(pid)
    yield check_git()
    yield check_bubblewrap()
    yield check_strace()
    yield check_agents()
    yield check_clock(state)
    yield from check_instances()


# -- systemd --------------------------------------------------------------------------------------


def check_service(pid: int | None) -> Iterator[Check]:
    """Check whether systemd restarts the daemon, supervises it and holds its socket, and whether its unit has this
    version.
    """
    environ = read_environ(pid) if pid is not None else None
    user, system = user_folder() / USER_SERVICE, SYSTEM_FOLDER / SYSTEM_SERVICE
    if environ is not None:
        yield _check_supervision(environ, is_installed=user.exists())
    for path, mend in ((user, "wakeful install"), (system, "sudo wakeful install --system --account NAME")):
        version = _read_version(path)
        if version not in (None, __version__):
            yield Check("service", "warn", f"{path} was written by version {version}, this is {__version__}", mend)
    # Services of the system do not end when an account logs out.
    if user.exists() and os.geteuid() != 0 and not is_lingering():
        yield Check(
            "linger", "warn", "your service ends when you log out, and does not start at boot", "loginctl enable-linger"
        )
    elif user.exists():
        yield Check("linger", "good", "your service keeps running when you log out")


def _check_supervision(environ: dict[str, str], *, is_installed: bool) -> Check:
    if "NOTIFY_SOCKET" not in environ:
        mend = "systemctl --user start wakeful" if is_installed else "wakeful install"
        # A daemon in a terminal is not an error. The words only name the command that installs a service.
        return Check(
            "service",
            "good",
            f"the daemon was started by hand: it is not restarted if it ends; as a service: {mend}",
        )
    watchdog = environ.get("WATCHDOG_USEC", "")
    lacking = [] if watchdog.isdigit() else ["no watchdog ends it if it hangs (WatchdogSec=)"]
    if "LISTEN_FDS" not in environ:
        lacking.append("no socket unit lets commands wait during a restart (wakeful.socket)")
    if lacking:
        return Check("service", "warn", f"run by systemd, but {' and '.join(lacking)}", "wakeful install")
    return Check(
        "service",
        "good",
        f"run by systemd, which ends it after {int(watchdog) / 1e6:.0f} s without a sign of life, and listens for it",
    )


def read_environ(pid: int) -> dict[str, str] | None:
    """Read the environment a process was started with. None if the process is gone or belongs to another account."""
    try:
        data = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return None
    pairs = (entry.decode(errors="replace").partition("=") for entry in data.split(b"\0") if entry)
    return {name: value for name, _, value in pairs}


def _read_version(path: Path) -> str | None:
    try:
        return find_version(path.read_text(errors="replace"))
    except OSError:
        return None


# -- programs -------------------------------------------------------------------------------------


def check_git() -> Check:
    if shutil.which("git") is None:
        return Check("git", "warn", "is not installed; `commits` bindings cannot be seen", "sudo apt install git")
    words = _run("git", "--version")[1].strip().removeprefix("git version ")
    found = re.match(r"(\d+)\.(\d+)", words)
    if found is None:
        return Check("git", "bad", f"prints no version: {words or 'no output'}", "git --version")
    if (int(found[1]), int(found[2])) < OLDEST_GIT:
        oldest = ".".join(map(str, OLDEST_GIT))
        return Check(
            "git",
            "warn",
            f"{words} is older than {oldest}: a person's git configuration affects how wakeful reads repositories",
            "sudo apt install git",
        )
    return Check("git", "good", words)


def check_bubblewrap() -> Check:
    if shutil.which("bwrap") is None:
        return Check(
            "bubblewrap",
            "warn",
            "is not installed; sessions with `isolation: strict` sleep",
            "sudo apt install bubblewrap",
        )
    code, words = _run("bwrap", *TRY_BUBBLEWRAP)
    if code == 0:
        return Check("bubblewrap", "good", _run("bwrap", "--version")[1].strip().removeprefix("bubblewrap "))
    words = f"cannot make a sandbox here ({words.strip() or f'exit {code}'}); sessions with `isolation: strict` sleep"
    return Check("bubblewrap", "warn", words, _mend_namespaces())


def check_strace() -> Check:
    """Check strace, which is optional. If it is missing, the commands that need it say so."""
    if shutil.which("strace") is None:
        return Check(
            "strace",
            "good",
            "is not installed; only `wakeful trace` and `isolation: observe` need it",
            "sudo apt install strace",
        )
    code, words = _run("strace", "-f", "-qq", "-o", "/dev/null", "/bin/true")
    if code == 0 and not words.strip():
        return Check("strace", "good", _run("strace", "--version")[1].partition("\n")[0].rpartition(" ")[2])
    return Check(
        "strace",
        "warn",
        f"cannot trace here ({' '.join(words.split()) or f'exit {code}'})",
        "sysctl kernel.yama.ptrace_scope",
    )


def check_agents() -> Check:
    """Check the libraries of agents, which are optional. If they are missing, the sessions that need them say so."""
    if has_agents():
        return Check("agents", "good", "the libraries of agents are installed")
    return Check(
        "agents", "good", "their libraries are not installed; only sessions with a `prompt` need them", offer_agents()
    )


def _mend_namespaces() -> str:
    """Return the command that turns on the kernel setting of a distribution that forbids user namespaces."""
    for name, wanted in (
        ("kernel/apparmor_restrict_unprivileged_userns", "0"),
        ("kernel/unprivileged_userns_clone", "1"),
        ("user/max_user_namespaces", "15000"),
    ):
        try:
            value = Path("/proc/sys", name).read_text().strip()
        except OSError:
            continue
        if value != wanted and (name != "user/max_user_namespaces" or value == "0"):
            return f"sudo sysctl {name.replace('/', '.')}={wanted}"
    return "bwrap --unshare-all --ro-bind / / --proc /proc true"


def _run(*words: str) -> tuple[int, str]:
    """Run a program. Return its exit code and its output."""
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, str(error)
    return done.returncode, done.stdout.decode(errors="replace")


# -- the kernel -----------------------------------------------------------------------------------


def check_clock(state: Path) -> Check:
    """Check that the clock is right now, and was right before. Clock bindings, pauses and records depend on it."""
    now = time.time()
    if now < EARLIEST_SECONDS:
        return Check(
            "clock",
            "bad",
            f"says {time.strftime('%Y-%m-%d', time.gmtime(now))}, which is in the past: "
            "slots are not due at the right time",
            SET_CLOCK,
        )
    ahead = _find_latest(state / "log") - now
    if ahead > AHEAD_SECONDS:
        return Check(
            "clock",
            "bad",
            f"was set back: the log was written {ahead / 60:.0f} min from now; slots and pauses wait until then",
            SET_CLOCK,
        )
    slept = (
        time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)
        if hasattr(time, "CLOCK_BOOTTIME")
        else 0.0
    )
    told = f"; the machine slept {slept / 3600:.1f} h since its start" if slept > 60 else ""
    if not is_clock_kept():
        return Check("clock", "warn", f"is not synchronised (no NTP){told}", SET_CLOCK)
    return Check("clock", "good", f"synchronised by NTP{told}")


def is_clock_kept() -> bool:
    """Is the clock synchronised? Asks adjtimex(2), which only reads here.

    The answer is True if even reading is denied, so that no false warning is given.
    """
    try:
        asked = ctypes.CDLL(None).adjtimex
    except (OSError, AttributeError):
        return True
    return bool(asked(ctypes.create_string_buffer(TIMEX_BYTES)) != TIME_ERROR)


def _find_latest(folder: Path) -> float:
    try:
        return max((entry.stat().st_mtime for entry in os.scandir(folder)), default=0.0)
    except OSError:
        return 0.0


def check_instances() -> Iterator[Check]:
    """Check inotify's second limit: instances per user.

    Many programs with a few watches each reach this limit first.
    """
    try:
        most = int((INOTIFY / "max_user_instances").read_text())
    except (OSError, ValueError):
        return
    used = count_instances()
    if used > most * 0.8:
        mend = f"sudo sysctl fs.inotify.max_user_instances={max(most * 4, 1024)}"
        yield Check(
            "watches",
            "warn",
            f"{used} of {most} inotify instances of this user are in use; beyond that folders are polled",
            mend,
        )


def count_instances() -> int:
    """Count the inotify instances of this user's processes that /proc shows."""
    found = 0
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        try:
            if process.stat().st_uid != os.geteuid():
                continue
            links = [os.readlink(link.path) for link in os.scandir(process / "fd")]
        except OSError:
            continue
        found += sum(link == "anon_inode:inotify" for link in links)
    return found
