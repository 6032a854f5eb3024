"""Time zones by name: the only module of the core that asks the machine's zone database.

Cron slots, windows and the periods of budgets depend on it. Events carry the periods that were found when they were
decided, so a log of this release folds without the database. For an older record with a zone that the machine does not
know, UTC is used.
"""

from __future__ import annotations

from datetime import UTC, tzinfo
from zoneinfo import ZoneInfo


def find_zone(name: str) -> tzinfo | None:
    """Return the zone of this name. None if the machine does not know it. UTC needs no database."""
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        # Unknown (ZoneInfoNotFoundError is a KeyError), a path instead of a name, or a folder such as "Europe".
        return None


def is_zone_known(name: str) -> bool:
    return find_zone(name) is not None
