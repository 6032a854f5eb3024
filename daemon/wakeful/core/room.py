"""How much room the log must always find: below that no run is started, so that what runs write cannot silence the log.

A full disk ends the daemon, since nothing can be acknowledged any more. Runs are what fills it: their scratch, their output
and the records they cause. Used by the watch on the disk and by `doctor`; pure, so that both say the same.
"""

from __future__ import annotations

# The write-ahead log keeps up to 64 MB between checkpoints, and a snapshot or a blob comes on top.
HOLD_BELOW_BYTES = 100_000_000
# On a small disk that would be most of it: a twentieth is what file systems keep for the system, too.
LARGEST_SHARE = 20
# Released only well above the mark: what one run gives back must not start the next into the same corner.
RELEASE_FACTOR = 1.5


def find_mark(total_bytes: int) -> int:
    """Below this many free bytes new runs wait."""
    return min(HOLD_BELOW_BYTES, total_bytes // LARGEST_SHARE)


def judge_room(free_bytes: int, total_bytes: int, *, is_short: bool) -> str | None:
    """What new runs wait for, in words; None when there is room. `is_short`: they wait already."""
    mark = find_mark(total_bytes)
    wanted = int(mark * RELEASE_FACTOR) if is_short else mark
    if free_bytes >= wanted:
        return None
    return f"room on disk: {_say(free_bytes)} free beside the log, {_say(wanted)} wanted"


def _say(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size < 10_000_000 else f"{size / 1e6:.0f} MB"
