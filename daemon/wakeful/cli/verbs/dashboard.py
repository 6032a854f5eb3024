"""`wakeful dashboard`: prints a link that logs one browser in, and opens it if there is a display."""

from __future__ import annotations

import json
import os
import sys
import webbrowser

from wakeful.cli.client import Options
from wakeful.cli.text import escape


def dashboard_verb(options: Options, is_quiet: bool, is_closing: bool) -> None:
    answer = options.client().post("/dashboard", is_closing=is_closing)
    if options.is_json:
        print(json.dumps(answer))
        return
    if is_closing:
        print(escape(answer["words"]))
        return
    # Standard output has only the link, so that it can be piped to another program.
    print(escape(answer["link"]), flush=True)
    is_opened = not is_quiet and has_display() and webbrowser.open(answer["link"])
    words = "opened in your browser" if is_opened else "open it in a browser of this machine"
    print(f"wakeful: {words}; the link logs one browser in, once, within five minutes", file=sys.stderr)


def has_display() -> bool:
    """Is there a display? Without a display, `webbrowser` would start a text browser in this terminal."""
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")) or sys.platform == "darwin"
