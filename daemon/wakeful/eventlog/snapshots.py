"""Which snapshots of a session are worth their space. Pure.

Opening needs the newest; looking at the past, forking and rewinding need one not far before any seq. Kept are the
oldest, the newest few and, between them, fewer the older they are: the gap around a moment is about an eighth of its
age, and never wider than what folds in some 7 ms. A session of a million events keeps a thousand,
a few megabytes beside its gigabyte.
"""

from __future__ import annotations

from collections.abc import Sequence

NEWEST_KEPT = 4
SPACING = 8
WIDEST_GAP = 1_000


def choose_dropped(seqs: Sequence[int]) -> list[int]:
    """The seqs to drop, of ascending seqs: each without which the gap it leaves is still small for its age."""
    dropped: list[int] = []
    if not seqs:
        return dropped
    newest, before = seqs[-1], seqs[0]
    for seq, after in zip(seqs[1:-NEWEST_KEPT], seqs[2:], strict=False):
        gap = after - before
        if gap <= WIDEST_GAP and gap * SPACING <= newest - after:
            dropped.append(seq)
        else:
            before = seq
    return dropped
