"""Where a command looks for the daemon and its folders: flags, then the environment, then the usual places.

The same order as the daemon's own in `settings` (design.md, section 8), without what that needs to read YAML: importing it
would cost `list` more than everything else together.
"""

from __future__ import annotations

import os

SOCKET_FILE = "wakeful.sock"
# Where `make run` keeps the state of a checkout.
CHECKOUT_STATE = ".wakeful"


def find_state(flag: str | None = None) -> str:
    named = flag or os.environ.get("WAKEFUL_STATE")
    if named:
        return os.path.abspath(os.path.expanduser(named))
    return _first("STATE_DIRECTORY") or os.path.join(_xdg("XDG_STATE_HOME", "~/.local/state"), "wakeful")


def find_specs(flag: str | None = None) -> str:
    named = flag or os.environ.get("WAKEFUL_SPECS")
    if named:
        return os.path.abspath(os.path.expanduser(named))
    if os.path.isdir("sessions.d"):
        return os.path.abspath("sessions.d")
    return os.path.join(_xdg("XDG_CONFIG_HOME", "~/.config"), "wakeful", "sessions.d")


def find_socket(flag: str | None = None) -> str:
    """The socket that was named, else the first of the usual places where there is one."""
    named = flag or os.environ.get("WAKEFUL_SOCKET")
    if named:
        return os.path.abspath(os.path.expanduser(named))
    places = usual_sockets()
    return next((place for place in places if os.path.exists(place)), places[0])


def usual_sockets() -> list[str]:
    """A daemon without a runtime folder listens in its state folder: the default one, or that of the checkout we stand in."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    folders = [_first("RUNTIME_DIRECTORY"), runtime if os.path.isdir(runtime) else "", find_state(), os.path.abspath(CHECKOUT_STATE)]
    return [os.path.join(folder, SOCKET_FILE) for folder in folders if folder]


def _first(variable: str) -> str:
    """systemd lists several folders with colons; ours is the first."""
    return os.environ.get(variable, "").split(":")[0]


def _xdg(variable: str, otherwise: str) -> str:
    # The XDG specification: a relative path is invalid and counts as unset.
    found = os.environ.get(variable, "")
    return found if found.startswith("/") else os.path.expanduser(otherwise)
