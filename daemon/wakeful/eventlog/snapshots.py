"""Which snapshots of a session are worth their space. Pure.

Opening needs the newest; looking at the past needs one not far before any seq. Kept are the newest few and, further back,
fewer the older they are: about 8 for each doubling of age, so a session of a million events keeps some hundred, not thousands.
"""

from __future__ import annotations

from collections.abc import Sequence

NEWEST_KEPT = 4
SPACING = 8


def choose_dropped(seqs: Sequence[int]) -> list[int]:
    """The seqs to drop, of ascending seqs: each that lies closer behind the next kept one than an eighth of its age."""
    if len(seqs) <= NEWEST_KEPT:
        return []
    newest, later = seqs[-1], seqs[-NEWEST_KEPT]
    dropped = []
    for seq in reversed(seqs[:-NEWEST_KEPT]):
        if (later - seq) * SPACING < newest - seq:
            dropped.append(seq)
        else:
            later = seq
    return dropped
