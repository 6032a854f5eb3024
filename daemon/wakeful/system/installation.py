"""Finds how this wakeful was installed, and the command that adds the extra `agents` to it.

wakeful is not in a package index, so `pip install 'wakeful[agents]'` would find nothing. The command therefore names
the checkout or the wheel that pip recorded (direct_url.json). The agent's process and `doctor` ask if the libraries are
missing. Reads only metadata.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
import sys
from importlib import metadata
from urllib.parse import unquote, urlsplit

from wakeful.errors import OperatorError

NAME = "wakeful"
EXTRA = "agents"
# The libraries for requests to models, and for external agents.
_LIBRARIES = ("httpx2", "acp")


class NotInstalled(OperatorError):
    """A session needs an agent, and the libraries for agents are missing."""


def has_agents() -> bool:
    """Are the libraries of the extra installed now?"""
    return all(importlib.util.find_spec(name) is not None for name in _LIBRARIES)


def advise_agents() -> str:
    """Return the end of an error message: the commands that help. The daemon need not be restarted."""
    return f"install them: {offer_agents()}; then: wakeful activate NAME"


def offer_agents() -> str:
    """Return the command as one line for a shell. If the wheel or checkout is gone, a remark in brackets follows."""
    place, is_editable = _find_origin()
    what = f"{place or NAME}[{EXTRA}]"
    pip = (
        (sys.executable, "-m", "pip", "install")
        if importlib.util.find_spec("pip")
        else ("uv", "pip", "install", "--python", sys.executable)
    )
    line = shlex.join((*pip, *(("--editable",) if is_editable else ()), what))
    if place is None or os.path.exists(place):
        return line
    return f"{line} ({place} is not there now: name the wheel that you have)"


def _find_origin() -> tuple[str | None, bool]:
    """Return the checkout, wheel or address that wakeful was installed from, and whether that install is editable.

    The place is None if wakeful came from a package index.
    """
    try:
        text = metadata.distribution(NAME).read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        # wakeful runs from its source, which can be installed like any checkout.
        return os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), True
    if text is None:
        return None, False
    found = json.loads(text)
    address = urlsplit(found["url"])
    place = unquote(address.path) if address.scheme == "file" else found["url"]
    return place, bool(found.get("dir_info", {}).get("editable"))
