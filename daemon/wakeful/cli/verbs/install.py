"""`install` and `uninstall`: the daemon as a systemd service, of one person or of an account for the whole machine.

Both commands print one line for each thing they do; `--dry-run` prints the lines and does nothing. Both may be
repeated. A file that `install` did not write is neither replaced nor removed. Neither command ever touches a state
folder or a spec.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import click

from wakeful.cli.client import Options
from wakeful.cli.exit_codes import Failure
from wakeful.cli.progress import Waiting
from wakeful.cli.systemd_units import (
    DROP_IN,
    SYSTEM_FOLDER,
    SYSTEM_SERVICE,
    SYSTEM_SOCKET,
    USER_SERVICE,
    USER_SOCKET,
    drop_in_folder,
    find_program,
    find_version,
    is_in_home,
    is_open_to_all,
    render_drop_in,
    render_system,
    render_user,
    user_folder,
)
from wakeful.cli.text import escape

# Seconds for `systemctl start`, which waits for READY: a minute more than the unit's TimeoutStartSec=. A first look
# over much data takes long.
PATIENCE_SECONDS = 360
ACCOUNT = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


class Service(NamedTuple):
    """The service of one account. `account` is empty for a person's own service."""

    account: str = ""

    @property
    def folder(self) -> Path:
        return SYSTEM_FOLDER if self.account else user_folder()

    @property
    def files(self) -> tuple[str, str]:
        return (SYSTEM_SERVICE, SYSTEM_SOCKET) if self.account else (USER_SERVICE, USER_SOCKET)

    @property
    def units(self) -> tuple[str, str]:
        """The names of both units. The socket comes first, because the service needs it."""
        return (
            (f"wakeful@{self.account}.socket", f"wakeful@{self.account}.service")
            if self.account
            else (USER_SOCKET, USER_SERVICE)
        )

    @property
    def systemctl(self) -> str:
        return "systemctl" if self.account else "systemctl --user"


def install_verb(
    options: Options,
    specs: str | None,
    state: str | None,
    is_user: bool,
    is_system: bool,
    account: str | None,
    is_dry: bool,
) -> None:
    service = _choose(is_user, is_system, account)
    hand = InstallSteps(options, service, is_dry=is_dry)
    if specs is not None and not os.path.isdir(os.path.expanduser(specs)):
        raise Failure(f"{escape(specs)} is not a folder; make it first, or name the one that holds your specs")
    places = [os.path.abspath(os.path.expanduser(place)) if place else None for place in (specs, state)]
    program = find_program()
    _check_program(service, program)
    hand.check_systemd()
    is_changed = _write_units(hand, service, program, *places)
    _start(hand, service, is_changed=is_changed)
    if not service.account and not is_lingering():
        hand.say("it will stop when you log out, and not start at boot, until you run: loginctl enable-linger")
    hand.close()


def uninstall_verb(options: Options, is_user: bool, is_system: bool, account: str | None, is_dry: bool) -> None:
    service = _choose(is_user, is_system, account)
    hand = InstallSteps(options, service, is_dry=is_dry)
    own = [service.folder / name for name in service.files if hand.is_own(service.folder / name)]
    drop_in = drop_in_folder(service.account) / DROP_IN
    if not own and not (service.account and hand.is_own(drop_in)):
        hand.say(f"nothing to undo: {service.folder} has no unit that `wakeful install` wrote")
        hand.close()
        return
    hand.check_systemd()
    hand.order(
        "disable",
        "--now",
        *reversed(service.units),
        said=f"stopped and disabled {' and '.join(reversed(service.units))}",
    )
    if service.account and hand.is_own(drop_in):
        hand.remove(drop_in)
    others = _other_accounts(service) if service.account else []
    if others:
        hand.say(f"{service.folder / SYSTEM_SERVICE} stays: it is the unit of {', '.join(others)}, too")
    for path in [] if others else own:
        hand.remove(path)
    hand.order("daemon-reload", said="told systemd to read its units again")
    hand.say("specs and state were not touched")
    hand.close()


class InstallSteps:
    """Changes files and units, and prints each change. With `is_dry` it only prints."""

    def __init__(self, options: Options, service: Service, *, is_dry: bool) -> None:
        self._is_json = options.is_json
        self._is_dry = is_dry
        self._service = service
        self._said: list[str] = []

    def say(self, words: str) -> None:
        self._said.append(words)
        if not self._is_json:
            print(escape(words), flush=True)

    def close(self) -> None:
        if self._is_json:
            print(json.dumps({"dry_run": self._is_dry, "done": self._said}))

    def _tell(self, words: str) -> None:
        self.say(f"would have {words}" if self._is_dry else words)

    def is_own(self, path: Path) -> bool:
        try:
            return not path.is_symlink() and find_version(path.read_text(errors="replace")) is not None
        except FileNotFoundError:
            return False

    def write(self, path: Path, text: str) -> bool:
        """Write the file. False if it already had this text."""
        if os.path.lexists(path) and not self.is_own(path):
            raise Failure(
                f"{path} is there, and `wakeful install` did not write it; move it away first, "
                "or keep it and leave install alone"
            )
        if path.exists() and path.read_text() == text:
            self.say(f"{path} is up to date")
            return False
        words = f"{'replaced' if path.exists() else 'written'} {path}"
        if not self._is_dry:
            path.parent.mkdir(parents=True, exist_ok=True)
            fresh = path.with_name(f".{path.name}.new")
            fresh.write_text(text)
            fresh.chmod(0o644)
            fresh.rename(path)
        self._tell(words)
        return True

    def remove(self, path: Path) -> None:
        if not self._is_dry:
            path.unlink()
            # A drop-in of the operator keeps the folder.
            if path.name == DROP_IN and not any(path.parent.iterdir()):
                path.parent.rmdir()
        self._tell(f"removed {path}")

    def make_folder(self, path: Path) -> None:
        if path.is_dir():
            return
        if not self._is_dry:
            path.mkdir(parents=True, mode=0o700)
        self._tell(f"made {path}: put your specs there")

    def order(self, *words: str, said: str) -> None:
        if not self._is_dry:
            # `systemctl start` waits until the daemon is ready, which may take minutes for much data.
            with Waiting(f"{self._service.systemctl} {words[0]}", is_shown=True):
                done = ask_systemd(self._service, *words)
            if done.returncode != 0:
                unit = self._service.units[1]
                logs = f"journalctl -u {unit} -n 20" if self._service.account else f"journalctl --user -u {unit} -n 20"
                raise Failure(
                    f"{self._service.systemctl} {' '.join(words)} failed: {escape(done.stderr.strip())} (see: {logs})"
                )
        self._tell(said)

    def is_running(self) -> bool:
        return "active" in ask_systemd(self._service, "is-active", *self._service.units).stdout.split()

    def check_systemd(self) -> None:
        """Raise `Failure` before anything is written, if no systemd answers."""
        if shutil.which("systemctl") is None:
            raise Failure("there is no systemd here (no systemctl); let your own supervisor run: wakeful daemon")
        if self._is_dry:
            return
        done = ask_systemd(self._service, "show", "--property=Version")
        if done.returncode == 0 and done.stdout.strip() != "Version=":
            return
        words = escape(done.stderr.strip().splitlines()[0] if done.stderr.strip() else "no answer")
        if self._service.account:
            raise Failure(f"systemd does not run this machine ({words}); let your own supervisor run: wakeful daemon")
        raise Failure(
            f"your own service manager does not answer ({words}): "
            "log in again by console or ssh (su and sudo start none), "
            f"or have it started at every boot with: sudo loginctl enable-linger {_own_name()}"
        )


def ask_systemd(service: Service, *words: str) -> subprocess.CompletedProcess[str]:
    environ = dict(os.environ)
    # su and sudo do not set XDG_RUNTIME_DIR. If its folder exists, the service manager runs.
    own = f"/run/user/{os.geteuid()}"
    if not service.account and not environ.get("XDG_RUNTIME_DIR") and os.path.isdir(own):
        environ["XDG_RUNTIME_DIR"] = own
    command = [*service.systemctl.split(), "--no-ask-password", *words]
    return subprocess.run(
        command, capture_output=True, text=True, errors="replace", env=environ, timeout=PATIENCE_SECONDS, check=False
    )


def is_lingering() -> bool:
    return os.path.exists(f"/var/lib/systemd/linger/{_own_name()}")


def _own_name() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def _choose(is_user: bool, is_system: bool, account: str | None) -> Service:
    if is_user and (is_system or account):
        raise click.UsageError("--user is your own daemon, --system and --account one of the machine: choose one")
    is_root = os.geteuid() == 0
    if not (is_system or account or is_root):
        return Service()
    if is_user or not is_root:
        told = "sudo wakeful install --system" if is_system or account else "wakeful install --system --account NAME"
        why = (
            "root has no daemon of its own, because runs execute the commands of specs"
            if is_root
            else "only root may write units of the machine"
        )
        raise Failure(f"{why}; run: {told}")
    name = account or os.environ.get("SUDO_USER", "")
    if name in ("", "root"):
        raise Failure(
            "whose daemon? It never runs as root: name the account with --account NAME (a new one: "
            "useradd --system --create-home NAME)"
        )
    try:
        found = pwd.getpwnam(name)
    except KeyError:
        raise Failure(
            f"there is no account {escape(name)!r}; make it with: useradd --system --create-home {escape(name)}"
        ) from None
    if found.pw_uid == 0 or not ACCOUNT.fullmatch(name):
        raise Failure(
            f"{escape(name)} cannot have a daemon: "
            f"{'it is root by another name' if found.pw_uid == 0 else 'systemd cannot name a unit after it'}"
        )
    return Service(name)


def _check_program(service: Service, program: str) -> None:
    if not os.access(program, os.X_OK):
        raise Failure(f"{escape(program)} cannot be executed; install the package, then run `wakeful install` again")
    # A service of the machine runs the program as another account, which must be able to read it.
    for path in (program, sys.executable) if service.account else ():
        if not is_open_to_all(path):
            raise Failure(
                f"{service.account} may not reach {escape(path)}; install wakeful where every account can, "
                "such as /opt or /usr/local"
            )


def _write_units(hand: InstallSteps, service: Service, program: str, specs: str | None, state: str | None) -> bool:
    """Write the units. Returns True if a file changed."""
    if not service.account:
        if specs is None:
            hand.make_folder(user_folder().parent.parent / "wakeful" / "sessions.d")
        return any(
            [hand.write(service.folder / name, text) for name, text in render_user(program, specs, state).items()]
        )
    changes = [hand.write(service.folder / name, text) for name, text in render_system(program).items()]
    drop_in = drop_in_folder(service.account) / DROP_IN
    # The unit makes only /home/ACCOUNT visible. Another home needs a drop-in.
    home = pwd.getpwnam(service.account).pw_dir
    shown = [home] if is_in_home(home) and home != f"/home/{service.account}" else []
    code = [place for place in dict.fromkeys((sys.prefix, sys.base_prefix)) if is_in_home(place)]
    if specs is not None or state is not None or shown or code:
        changes.append(hand.write(drop_in, render_drop_in(program, specs, state, shown=shown, code=code)))
    elif hand.is_own(drop_in):
        hand.remove(drop_in)
        changes.append(True)
    return any(changes)


def _start(hand: InstallSteps, service: Service, *, is_changed: bool) -> None:
    names = " and ".join(service.units)
    if is_changed:
        hand.order("daemon-reload", said="told systemd to read its units again")
        # systemd can bind a changed socket only while its service is stopped.
        if hand.is_running():
            hand.order("stop", *reversed(service.units), said=f"stopped {names}, to start them again")
    when = "with the machine" if service.account else "with your login"
    hand.order("enable", "--now", *service.units, said=f"enabled and started {names}: they start {when} from now on")


def _other_accounts(service: Service) -> list[str]:
    """List the other accounts whose daemons use the same template unit."""
    found = {
        path.name.removeprefix("wakeful@").rpartition(".")[0]
        for path in SYSTEM_FOLDER.glob("*.wants/wakeful@*.service")
    }
    return sorted(found - {service.account})
