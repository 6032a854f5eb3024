"""Where a command finds the daemon and its folders, without asking anybody: flags, then the environment, then defaults.

The same order as the daemon's own (design.md, section 8). Kept apart from `settings`, which knows the same and reads YAML:
loading that would cost `list` more than everything else together.
"""

from __future__ import annotations

import os

SOCKET_NAME = "wakeful.sock"
# Where `make run` keeps the state of a checkout.
CHECKOUT_STATE = ".wakeful"


def find_state(flag: str | None = None) -> str:
    found = flag or os.environ.get("WAKEFUL_STATE") or os.environ.get("STATE_DIRECTORY")
    if found:
        return os.path.abspath(found)
    return os.path.join(os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state"), "wakeful")


def find_specs(flag: str | None = None) -> str:
    found = flag or os.environ.get("WAKEFUL_SPECS")
    if found:
        return os.path.abspath(found)
    if os.path.isdir("sessions.d"):
        return os.path.abspath("sessions.d")
    return os.path.join(os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config"), "wakeful", "sessions.d")


def find_socket(flag: str | None = None) -> str:
    """The socket that was named, else the first of the usual places where there is one."""
    named = flag or os.environ.get("WAKEFUL_SOCKET")
    if named:
        return named
    places = usual_sockets()
    return next((place for place in places if os.path.exists(place)), places[0])


def usual_sockets() -> list[str]:
    """A daemon without a runtime folder listens in its state folder: the default one, or that of the checkout we stand in."""
    folders = [os.environ.get("RUNTIME_DIRECTORY"), os.environ.get("XDG_RUNTIME_DIR"), find_state(), os.path.abspath(CHECKOUT_STATE)]
    return [os.path.join(folder, SOCKET_NAME) for folder in folders if folder]
