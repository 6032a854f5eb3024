"""A machine of namespaces with a real systemd, a bus, a journal, logins and the code under test.

It boots in half a second over an overlay of this system's own root, so that nothing is kept or reaches the host.
`why_not` returns what a system lacks for it. It needs root, because only root can mount an overlay of /.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from wait_conditions import eventually

ACCOUNT, UID = "wakey", 4242
WAKEFUL = str(Path(sys.executable).with_name("wakeful"))
SYSTEMD = Path("/lib/systemd/systemd")
NEEDED = ("unshare", "nsenter", "systemctl", "busctl", "dbus-daemon", "useradd", "setpriv", "pivot_root", "journalctl")
REPOSITORY = Path(__file__).parent.parent.parent
SPECS = Path(f"/home/{ACCOUNT}/sessions.d")

# Each line runs in the unit's own sandbox, as its account. They cover the needs of a container, bubblewrap, strace, a
# JIT compiler, and a build.
TOOLS = """
unshare -Urmpf sh -c 'mount -t tmpfs t /mnt && mount -t proc p /proc' && echo namespaces
! command -v bwrap > /dev/null || bwrap --unshare-all --ro-bind / / --proc /proc --dev /dev true && echo bubblewrap
! command -v strace > /dev/null || { strace -D -f -qq -o /dev/stdout true | grep execve > /dev/null; } && echo strace
python3 -c 'import mmap; mmap.mmap(-1, 4096, prot=7)' && echo memory that is written and executed
nice -n 5 ionice -c 3 taskset -c 0 true && echo priorities
test "$(ps -e | wc -l)" -gt 3 && test -r /proc/meminfo && echo other processes
touch ~/touched /tmp/touched /var/tmp/touched && echo places of work
"""
TOOLS_SAID = [
    "namespaces",
    "bubblewrap",
    "strace",
    "memory that is written and executed",
    "priorities",
    "other processes",
    "places of work",
]


def why_not() -> str | None:
    """Return what this system lacks for a machine, or None."""
    if os.geteuid() != 0:
        return "only root may mount an overlay of /"
    missing = [
        name for name in NEEDED if shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") is None
    ]
    if missing or not SYSTEMD.exists():
        return f"this system has no {', '.join(missing) or SYSTEMD} (Debian and Ubuntu: apt install systemd dbus libpam-systemd util-linux)"
    if "overlay" not in Path("/proc/filesystems").read_text():
        return "this kernel has no overlay file system"
    if _find_cgroup2() is None:
        return "no cgroup2 file system is mounted"
    return None


def _find_cgroup2() -> Path | None:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        if after.startswith("cgroup2 "):
            return Path(before.split(" ")[4])
    return None


class Machine:
    """A machine that `boot` starts and `close` ends, with all its processes, mounts and control groups."""

    def __init__(self, folder: Path) -> None:
        mount = _find_cgroup2()
        assert mount is not None
        self._build = folder / "machine"
        self._console = folder / "console"
        self._group = mount / f"wakeful-test-{os.getpid()}-{folder.name}"
        self._holder: subprocess.Popen[bytes] | None = None
        self._first = 0

    def boot(self) -> None:
        self._build.mkdir()
        self._group.mkdir()
        script = f'echo $$ > "{self._group}/cgroup.procs"; exec unshare -fpmuiC --kill-child sh "$0" "$1"'
        words = ["sh", "-c", script, str(Path(__file__).with_name("boot.sh")), str(self._build)]
        with self._console.open("wb") as console:
            self._holder = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=console, stderr=console, start_new_session=True
            )
        eventually(self._has_booted)
        self.run("umount", "-l", "/proc/sys")
        self.run("useradd", "-m", "-u", str(UID), ACCOUNT)
        # The interpreter and this checkout may be in a person's home. Let every account of the machine enter it.
        for path in {
            *Path(os.path.realpath(sys.executable)).parents,
            *Path(sys.executable).parents,
            *REPOSITORY.parents,
            REPOSITORY,
        } - {Path("/")}:
            self.run("chmod", "a+x", str(path))

    def _has_booted(self) -> bool:
        assert self._holder is not None
        assert self._holder.poll() is None, f"the machine did not boot:\n{self.console()}"
        children = Path(f"/proc/{self._holder.pid}/task/{self._holder.pid}/children").read_text().split()
        if not children:
            return False
        self._first = int(children[0])
        if not os.path.exists(f"/proc/{self._first}/root/run/systemd/private"):
            return False
        return self.ask("systemctl", "is-system-running").stdout.strip() in ("running", "degraded")

    def close(self) -> None:
        if self._holder is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._first or self._holder.pid, signal.SIGKILL)
            self._holder.wait(60)
        eventually(self._remove_groups)

    def _remove_groups(self) -> bool:
        """Remove the control groups.

        The kernel allows that only a moment after a group's last process has ended.
        """
        for folder, _, _ in os.walk(self._group, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(folder)
        return not self._group.exists()

    # -- inside -------------------------------------------------------------------------------

    def ask(self, *words: str, is_person: bool = False, **more: Any) -> subprocess.CompletedProcess[str]:
        """Run a command inside, as root or as the person. Its failure is not an error."""
        return subprocess.run(
            self.enter(*words, is_person=is_person), capture_output=True, text=True, timeout=90, **more
        )

    def enter(self, *words: str, is_person: bool = False) -> list[str]:
        """Return the command that runs `words` inside."""
        enter = [
            "nsenter",
            "-t",
            str(self._first),
            "-m",
            "-p",
            "-C",
            "-u",
            "-i",
            f"--root=/proc/{self._first}/root",
            "-w",
            "env",
            "-i",
        ]
        path = f"PATH={os.path.dirname(WAKEFUL)}:/usr/sbin:/usr/bin:/sbin:/bin"
        if not is_person:
            return [*enter, path, "LANG=C.UTF-8", *words]
        own = [f"HOME=/home/{ACCOUNT}", f"USER={ACCOUNT}", f"XDG_RUNTIME_DIR=/run/user/{UID}"]
        return [
            *enter,
            path,
            "LANG=C.UTF-8",
            *own,
            "setpriv",
            f"--reuid={UID}",
            f"--regid={UID}",
            "--clear-groups",
            *words,
        ]

    def run(self, *words: str, is_person: bool = False) -> str:
        done = self.ask(*words, is_person=is_person)
        assert done.returncode == 0, (
            f"{' '.join(words)} ended with {done.returncode}: {done.stdout}{done.stderr}\n{self.journal()}"
        )
        return done.stdout

    def show(self, unit: str, *properties: str, is_person: bool = False) -> list[str]:
        """Return the values of these properties, in this order."""
        words = ["systemctl", *(["--user"] if is_person else []), "show", unit, *(f"-p{name}" for name in properties)]
        found = dict(line.split("=", 1) for line in self.run(*words, is_person=is_person).splitlines())
        return [found[name] for name in properties]

    def write(self, path: Path | str, text: str) -> None:
        """Write a file of the person's account."""
        place = Path(path)
        script = 'mkdir -p "$(dirname "$1")" && cat > "$1"'
        subprocess.run(
            self.enter("sh", "-c", script, "sh", str(place), is_person=True),
            input=text,
            text=True,
            check=True,
            timeout=60,
        )

    def read(self, path: Path | str) -> str:
        return self.ask("cat", str(path)).stdout

    def drop_in(self, unit: str, text: str) -> None:
        """Add a drop-in, as an operator does with `systemctl edit`."""
        folder = f"/etc/systemd/system/{unit}.d"
        subprocess.run(
            self.enter("sh", "-c", f"mkdir -p {folder} && cat > {folder}/test.conf && systemctl daemon-reload"),
            input=text,
            text=True,
            check=True,
            timeout=60,
        )

    def entries(self, *words: str) -> list[dict[str, Any]]:
        """Return the matching entries of the journal, oldest first."""
        self.run("journalctl", "--sync")
        return [json.loads(line) for line in self.run("journalctl", "-o", "json", "--no-pager", *words).splitlines()]

    def journal(self) -> str:
        return self.ask("journalctl", "--no-pager", "-n", "60").stdout + self.console()

    def console(self) -> str:
        return self._console.read_text(errors="replace")
