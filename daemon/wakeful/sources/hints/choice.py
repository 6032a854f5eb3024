"""Which watcher to use: the setting `hints`, and what this system can do.

Asked by the switch, when it is made and whenever the setting changes.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Literal

from wakeful.errors import OperatorError
from wakeful.sources.hints.contract import Hints, MakeHints, Report
from wakeful.sources.hints.poll import NoHints
from wakeful.sources.hints.watchfiles import WatchfilesHints

HintsSetting = Literal["auto", "inotify", "watchfiles", "poll"]

IS_LINUX = sys.platform == "linux"
if IS_LINUX:
    from wakeful.sources.hints.inotify import InotifyHints


def choose_hints(setting: HintsSetting) -> MakeHints:
    """The maker of watchers for this setting; `auto` is inotify on Linux, watchfiles elsewhere."""
    match setting:
        case "poll":
            return lambda loop, report: NoHints("chosen by `hints: poll`")
        case "watchfiles":
            return WatchfilesHints
        case "inotify" if not IS_LINUX:
            raise OperatorError(
                f"wakeful.yaml: `hints: inotify` needs Linux, this is {sys.platform}; write `hints: auto`"
            )
        case "auto" if not IS_LINUX:
            return WatchfilesHints
        case _:
            return _make_inotify


def _make_inotify(loop: asyncio.AbstractEventLoop, report: Report) -> Hints:
    try:
        return InotifyHints(loop, report)
    except OSError as problem:
        # The instance limit of the user is spent by other programs: late hints are better than no daemon.
        return NoHints(f"no inotify instance ({problem.strerror}; see fs.inotify.max_user_instances)")
