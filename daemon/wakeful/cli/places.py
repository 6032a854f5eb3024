"""Where a command looks for the daemon and its folders: flags, then the environment, then the project,
then the usual places.

The same order as the daemon's own in `settings` (design.md, section 8), without what that needs to read YAML: importing
it would cost `list` more than everything else together. The project is the nearest folder upwards that has a state
folder of its own. Inside it every verb means that log: if its daemon is down, no verb goes to another daemon instead.
"""

from __future__ import annotations

import os
import pwd
import sys
from typing import NamedTuple

from wakeful.system.state_folder import PROJECT_STATE, SOCKET_FILE, find_project, read_address
from wakeful.text.display import escape

# Where the machine's daemons listen, each in a folder named after its account.
MACHINE_RUNTIME = "/run/wakeful"
_told: set[str] = set()


class SocketPlace(NamedTuple):
    """Where to connect.

    `pid`: the process that must listen there, if that is known. `project`: whose daemon it is, if a project's.
    """

    path: str
    pid: int | None = None
    project: str | None = None


def find_state(flag: str | None = None) -> str:
    named = flag or os.environ.get("WAKEFUL_STATE")
    if named:
        return os.path.abspath(os.path.expanduser(named))
    return _first("STATE_DIRECTORY") or _find_project() or _own_state()


def find_specs(flag: str | None = None) -> str:
    named = flag or os.environ.get("WAKEFUL_SPECS")
    if named:
        return os.path.abspath(os.path.expanduser(named))
    if os.path.isdir("sessions.d"):
        return os.path.abspath("sessions.d")
    return os.path.join(_xdg("XDG_CONFIG_HOME", "~/.config"), "wakeful", "sessions.d")


def find_history() -> str:
    """Where the lines that this person typed in `wakeful talk` are kept."""
    return os.path.join(_own_state(), "talk_history")


def find_secrets() -> str:
    """Where this person's secrets lie, one file each."""
    return os.path.join(_xdg("XDG_CONFIG_HOME", "~/.config"), "wakeful", "secrets")


def find_socket(flag: str | None = None, *, is_quiet: bool = False) -> SocketPlace:
    """The socket that was named, else that of the project, else the first of the usual places where there is one."""
    named = flag or os.environ.get("WAKEFUL_SOCKET")
    if named:
        return SocketPlace(os.path.abspath(os.path.expanduser(named)))
    given = _first("RUNTIME_DIRECTORY")
    if given and os.path.exists(os.path.join(given, SOCKET_FILE)):
        return SocketPlace(os.path.join(given, SOCKET_FILE))
    is_state_given = bool(os.environ.get("WAKEFUL_STATE") or _first("STATE_DIRECTORY"))
    project = "" if is_state_given else _find_project(is_quiet=is_quiet)
    if project:
        address = read_address(project)
        return SocketPlace(address.socket, address.pid, project)
    places = _usual_sockets()
    return SocketPlace(next((place for place in places if os.path.exists(place)), places[0]))


def _usual_sockets() -> list[str]:
    """Where the daemon of this person listens: in the runtime folder, in its state folder,
    or the machine's for this account."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    state = find_state() if os.environ.get("WAKEFUL_STATE") else _first("STATE_DIRECTORY") or _own_state()
    folders = [_first("RUNTIME_DIRECTORY"), runtime if os.path.isdir(runtime) else "", state]
    return [*(os.path.join(folder, SOCKET_FILE) for folder in folders if folder), *_machine_sockets()]


def say_project_down(state: str) -> str:
    """Say that the project's daemon is down, and on a line of its own, to be copied, the command that starts it."""
    return (
        f"the daemon of this project is down: none answers for {escape(state)}; start it with:\n"
        f"  {escape(say_start(state))}"
    )


def say_start(state: str) -> str:
    """The command that starts the daemon of a project, from the folder we stand in."""
    root = os.path.dirname(state)
    words = f"wakeful daemon --state {PROJECT_STATE}"
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if runtime and os.path.exists(os.path.join(runtime, SOCKET_FILE)):
        # Another daemon listens at the usual place, and a second one would be refused there.
        words += f" --socket {PROJECT_STATE}/{SOCKET_FILE}"
    return words if root == os.getcwd() else f"cd {_quote(root)} && {words}"


def _quote(path: str) -> str:
    """Quote a word for a shell. By hand: shlex alone takes a millisecond to import, of every command."""
    is_plain = path.isascii() and all(sign.isalnum() or sign in "/._-" for sign in path)
    return path if is_plain else "'" + path.replace("'", "'\\''") + "'"


def _machine_sockets() -> list[str]:
    """Where wakeful@ACCOUNT.service listens, if the machine has one for this account."""
    if not os.path.isdir(MACHINE_RUNTIME):
        return []
    try:
        account = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return []
    return [os.path.join(MACHINE_RUNTIME, account, SOCKET_FILE)]


def _find_project(*, is_quiet: bool = False) -> str:
    """The state folder of the project we stand in; empty when it has none.

    Says, once a command, which folders are not used and why.
    """
    found = find_project()
    for words in () if is_quiet else found.passed_over:
        if words not in _told:
            _told.add(words)
            print(f"wakeful: passed over: {escape(words)}", file=sys.stderr)
    return found.folder or ""


def _own_state() -> str:
    return os.path.join(_xdg("XDG_STATE_HOME", "~/.local/state"), "wakeful")


def _first(variable: str) -> str:
    """systemd lists several folders with colons; ours is the first."""
    return os.environ.get(variable, "").split(":")[0]


def _xdg(variable: str, otherwise: str) -> str:
    # The XDG specification: a relative path is invalid and counts as unset.
    found = os.environ.get(variable, "")
    return found if found.startswith("/") else os.path.expanduser(otherwise)
