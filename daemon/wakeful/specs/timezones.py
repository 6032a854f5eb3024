"""The machine's own time zone, by name: what a cron binding means when it names none.

Called once per reading of the folder. Never guesses: a machine whose zone has no name gives a problem, which
only a spec that needs the default reports.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from zoneinfo import ZoneInfo

LOCALTIME = "/etc/localtime"


def is_zone(name: str) -> bool:
    if name == "UTC":
        # Known without a zone database.
        return True
    try:
        ZoneInfo(name)
    # KeyError: unknown; ValueError: a path; OSError: a folder such as Europe.
    except (KeyError, ValueError, OSError):
        return False
    return True


def find_local_zone(environ: Mapping[str, str], localtime: str = LOCALTIME) -> str | None:
    """TZ, else where /etc/localtime points, else UTC as the C library has it; None where TZ is no name."""
    if declared := environ.get("TZ", "").removeprefix(":"):
        return _zone_of_path(declared) if declared.startswith("/") else (declared if is_zone(declared) else None)
    return _zone_of_path(localtime) if os.path.exists(localtime) else "UTC"


def _zone_of_path(path: str) -> str | None:
    _, found, name = os.path.realpath(path).partition("/zoneinfo/")
    name = name.removeprefix("posix/").removeprefix("right/")
    return name if found and is_zone(name) else _zone_named_in_etc()


def _zone_named_in_etc() -> str | None:
    """Debian keeps the name apart where /etc/localtime is a copy and not a link."""
    try:
        with open("/etc/timezone", encoding="ascii") as file:
            name = file.read(100).strip()
    except (OSError, UnicodeDecodeError):
        return None
    return name if is_zone(name) else None
