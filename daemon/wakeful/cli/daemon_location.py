"""Finds the daemon's socket and folders: by flag, then environment, then project, then the usual places.

The order is the same as in `settings`. This copy exists because `settings` reads YAML, and that import would cost
`list` more time than all its other work. The project is the nearest folder upwards that has its own state folder.
Inside a project every verb uses that state. If the project's daemon is down, no verb uses another daemon.
"""

from __future__ import annotations

import os
import pwd
import sys
from typing import NamedTuple

from wakeful.system.state_folder import PROJECT_STATE, SOCKET_FILE, find_project, read_address
from wakeful.text.display import escape

# The folder of the sockets of system services, each in a sub-folder named after its account.
MACHINE_RUNTIME = "/run/wakeful"
_told: set[str] = set()


class SocketPlace(NamedTuple):
    """The socket to connect to.

    `pid` is the process that must listen there, if known. `project` is the state folder of the project, if any.
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
    """Return the file with the input history of `wakeful talk`."""
    return os.path.join(_own_state(), "talk_history")


def find_secrets() -> str:
    """Return the folder of the user's secrets, one file each."""
    return os.path.join(_xdg("XDG_CONFIG_HOME", "~/.config"), "wakeful", "secrets")


def find_socket(flag: str | None = None, *, is_quiet: bool = False) -> SocketPlace:
    """Return the named socket, else the project's, else the first existing socket of the usual places."""
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
    """List the usual sockets of the user's daemon: in the runtime folder, in its state folder, or of the system service
    for this account."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    state = find_state() if os.environ.get("WAKEFUL_STATE") else _first("STATE_DIRECTORY") or _own_state()
    folders = [_first("RUNTIME_DIRECTORY"), runtime if os.path.isdir(runtime) else "", state]
    return [*(os.path.join(folder, SOCKET_FILE) for folder in folders if folder), *_machine_sockets()]


def say_project_down(state: str) -> str:
    """Return the message that the project's daemon is down, with the command that starts it on its own line."""
    return (
        f"the daemon of this project is down: none answers for {escape(state)}; start it with:\n"
        f"  {escape(say_start(state))}"
    )


def say_start(state: str) -> str:
    """Return the command that starts the daemon of a project from the current folder."""
    root = os.path.dirname(state)
    words = f"wakeful daemon --state {PROJECT_STATE}"
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if runtime and os.path.exists(os.path.join(runtime, SOCKET_FILE)):
        # Another daemon already uses the usual socket.
        words += f" --socket {PROJECT_STATE}/{SOCKET_FILE}"
    return words if root == os.getcwd() else f"cd {_quote(root)} && {words}"


def _quote(path: str) -> str:
    """Quote a word for a shell. Importing shlex would cost every command a millisecond."""
    is_plain = path.isascii() and all(sign.isalnum() or sign in "/._-" for sign in path)
    return path if is_plain else "'" + path.replace("'", "'\\''") + "'"


def _machine_sockets() -> list[str]:
    """List the socket of wakeful@ACCOUNT.service, if the machine has such services."""
    if not os.path.isdir(MACHINE_RUNTIME):
        return []
    try:
        account = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return []
    return [os.path.join(MACHINE_RUNTIME, account, SOCKET_FILE)]


def _find_project(*, is_quiet: bool = False) -> str:
    """Return the state folder of the current project. Empty if there is none.

    Prints which state folders were skipped and why, once per command.
    """
    found = find_project()
    for words in () if is_quiet else found.passed_over:
        if words not in _told:
            _told.add(words)
            print(f"wakeful: skipped a state folder: {escape(words)}", file=sys.stderr)
    return found.folder or ""


def _own_state() -> str:
    return os.path.join(_xdg("XDG_STATE_HOME", "~/.local/state"), "wakeful")


def _first(variable: str) -> str:
    """Return the first folder in a variable. systemd separates several folders by colons; the first one is ours."""
    return os.environ.get(variable, "").split(":")[0]


def _xdg(variable: str, otherwise: str) -> str:
    # The XDG specification: a relative path is invalid and counts as unset.
    found = os.environ.get(variable, "")
    return found if found.startswith("/") else os.path.expanduser(otherwise)
