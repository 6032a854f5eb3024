"""How this wakeful was installed, and the command that adds the extra `agents` to it.

There is no registry that `pip install 'wakeful[agents]'` could ask: the command names the checkout or the wheel that
pip wrote down (direct_url.json). Asked where the libraries are missing: by the process that thinks,
and by `doctor`. Reads metadata alone.
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
# Requests to models, and external agents.
_LIBRARIES = ("httpx2", "acp")


class NotInstalled(OperatorError):
    """A session needs an agent, and the libraries for agents are missing."""


def has_agents() -> bool:
    """Whether the libraries of the extra are there now."""
    return all(importlib.util.find_spec(name) is not None for name in _LIBRARIES)


def advise_agents() -> str:
    """The end of a sentence: what to do. The daemon need not be started again."""
    return f"install them: {offer_agents()}; then: wakeful activate NAME"


def offer_agents() -> str:
    """The command, as one line for a shell; words in brackets behind it where the wheel is not where it was."""
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
    """The folder or the wheel that it was installed from, and whether by a link to a checkout.

    None: an index of packages.
    """
    try:
        text = metadata.distribution(NAME).read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        # Run from its source, which can be installed as any checkout.
        return os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), True
    if text is None:
        return None, False
    found = json.loads(text)
    address = urlsplit(found["url"])
    place = unquote(address.path) if address.scheme == "file" else found["url"]
    return place, bool(found.get("dir_info", {}).get("editable"))
