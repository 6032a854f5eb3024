"""An independent judge of what must hold (semantics.md, last section): it reads the log and the world, never the core's reasons.

`take` judges every committed entry; `judge_rest` judges a world in which nothing is under way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wakeful.core import events as ev

if TYPE_CHECKING:
    from core.world import Recorded, World


class Oracle:
    def __init__(self, world: World) -> None:
        self.world = world
        self.seqs: dict[str, int] = {}

    def reboot(self) -> None:
        pass

    def take(self, entry: Recorded) -> None:
        assert entry.seq == self.seqs.get(entry.session, 0) + 1
        self.seqs[entry.session] = entry.seq
        assert isinstance(entry.event, ev.Event)
