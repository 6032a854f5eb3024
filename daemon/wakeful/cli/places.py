"""Where a command looks for the daemon and its folders: flags, then the environment, then here, then the usual places.

The same order as the daemon's own in `settings` (design.md, section 8), without what that needs to read YAML: importing it
would cost `list` more than everything else together. Besides, a project that has a log of its own is meant where one stands
in it: the socket and the state folder are found by the same rule, so that no verb acts on another log than the one before it.
"""

from __future__ import annotations

import os
import pwd

SOCKET_FILE = "wakeful.sock"
# Where a project keeps a log of its own; `make run` does.
PROJECT_STATE = ".wakeful"
# Where the machine's daemons listen, each in a folder named after its account.
MACHINE_RUNTIME = "/run/wakeful"


def find_state(flag: str | None = None) -> str:
    named = flag or os.environ.get("WAKEFUL_STATE")
    if named:
        return os.path.abspath(os.path.expanduser(named))
    return _first("STATE_DIRECTORY") or _project_state() or _own_state()


def find_specs(flag: str | None = None) -> str:
    named = flag or os.environ.get("WAKEFUL_SPECS")
    if named:
        return os.path.abspath(os.path.expanduser(named))
    if os.path.isdir("sessions.d"):
        return os.path.abspath("sessions.d")
    return os.path.join(_xdg("XDG_CONFIG_HOME", "~/.config"), "wakeful", "sessions.d")


def find_secrets() -> str:
    """Where this person's secrets lie, one file each."""
    return os.path.join(_xdg("XDG_CONFIG_HOME", "~/.config"), "wakeful", "secrets")


def find_socket(flag: str | None = None) -> str:
    """The socket that was named, else the first of the usual places where there is one."""
    named = flag or os.environ.get("WAKEFUL_SOCKET")
    if named:
        return os.path.abspath(os.path.expanduser(named))
    places = usual_sockets()
    return next((place for place in places if os.path.exists(place)), places[0])


def usual_sockets() -> list[str]:
    """The daemon of the project we stand in, else the one of this person: in the runtime folder, in its state folder, or the machine's for this account."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    given = os.environ.get("WAKEFUL_STATE") and find_state()
    own = given or _first("STATE_DIRECTORY") or _own_state()
    folders = [_first("RUNTIME_DIRECTORY"), "" if given else _project_state(), runtime if os.path.isdir(runtime) else "", own]
    return [*(os.path.join(folder, SOCKET_FILE) for folder in folders if folder), *_machine_sockets()]


def _machine_sockets() -> list[str]:
    """Where wakeful@ACCOUNT.service listens, if the machine has one for this account."""
    if not os.path.isdir(MACHINE_RUNTIME):
        return []
    try:
        account = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return []
    return [os.path.join(MACHINE_RUNTIME, account, SOCKET_FILE)]


def _project_state() -> str:
    """The state folder of the project we stand in; empty when it has none."""
    return os.path.abspath(PROJECT_STATE) if os.path.isdir(PROJECT_STATE) else ""


def _own_state() -> str:
    return os.path.join(_xdg("XDG_STATE_HOME", "~/.local/state"), "wakeful")


def _first(variable: str) -> str:
    """systemd lists several folders with colons; ours is the first."""
    return os.environ.get(variable, "").split(":")[0]


def _xdg(variable: str, otherwise: str) -> str:
    # The XDG specification: a relative path is invalid and counts as unset.
    found = os.environ.get(variable, "")
    return found if found.startswith("/") else os.path.expanduser(otherwise)
