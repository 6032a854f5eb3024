"""Connection limits: counts the connections of each holder, limits each run, and reserves places for people.

The listener calls `admit` before it serves a connection, and `release` when the connection has ended. A run cannot use
up the places of people or of other runs. A refusal names the largest holder. This module only counts, and never closes
a connection.
"""

from __future__ import annotations

import os
import resource
from collections import Counter
from collections.abc import Callable
from typing import Any

from wakeful.api.gate.callers import Peer, Unknown
from wakeful.core.record.observations import ProcessOwner
from wakeful.text.display import count

MOST_CONNECTIONS = 512
# The most connections of one run. An agent has one for each call under way, and keeps it open for a moment afterwards.
MOST_OF_ONE_RUN = 32
# The share of all places that is reserved for people.
KEPT_SHARE = 1 / 8
FEWEST_KEPT = 1
# The share of the descriptors free at the daemon's start that connections may use. Runs, watches and the log need the
# rest.
DESCRIPTOR_SHARE = 1 / 2
FEWEST_CONNECTIONS = 4
# The places of the TCP port, as a share of the places of the control socket. The port has them in addition.
TCP_SHARE = 1 / 2
# The most refused clients whose connections are still open. They may use this share of the connections' descriptors.
MOST_REFUSED_OPEN = 16
REFUSED_SHARE = 1 / 4


class Connections:
    """The places of the control socket. `name_run` returns the name of a run for people, by its id."""

    def __init__(self, name_run: Callable[[str], str]) -> None:
        self._name_run = name_run
        self.most, self.most_refused_open = find_most()
        self.kept = max(FEWEST_KEPT, int(self.most * KEPT_SHARE))
        self._uid = os.geteuid()
        self._held: Counter[tuple[str, int]] = Counter()
        self._names: dict[int, str] = {}
        self._refused = 0

    @property
    def total(self) -> int:
        return self._held.total()

    def admit(self, peer: Peer) -> str | None:
        """Take a place for a connection. Returns None, or the reason why there is no place."""
        refusal = self._find_refusal(peer)
        if refusal is not None:
            self._refused += 1
            return refusal
        self._held[self._find_holder(peer)] += 1
        if isinstance(peer.standing, ProcessOwner):
            run_id = peer.standing.run_id
            self._names[peer.standing.mark] = "of another daemon" if run_id is None else self._name_run(run_id)
        return None

    def release(self, peer: Peer) -> None:
        """Release the place of a connection that has ended."""
        holder = self._find_holder(peer)
        self._held[holder] -= 1
        if self._held[holder] <= 0:
            del self._held[holder]
            self._names.pop(holder[1], None)

    def _find_refusal(self, peer: Peer) -> str | None:
        if self.total >= self.most:
            return (
                f"the daemon is busy: all of its {count(self.most, 'connection')} are in use{self._say_largest()}; "
                "close some of them, or wait"
            )
        if self._find_holder(peer)[0] == "process":
            return self._find_overuse(peer)
        if self._held[self._find_holder(peer)] >= MOST_OF_ONE_RUN:
            return (
                f"the daemon is busy: {self._say_holder(self._find_holder(peer))} has "
                f"{count(MOST_OF_ONE_RUN, 'connection')}, the most it may have; close one of them"
            )
        if self.total >= self.most - self.kept:
            return (
                f"the daemon is busy: {self.total} of {count(self.most, 'connection')} are in "
                f"use{self._say_largest()}, and the rest is reserved for people; call again later"
            )
        return None

    def _find_overuse(self, peer: Peer) -> str | None:
        """Return why a program of a person may not take one of the last places. None if it may have a place.

        The last places are for other programs, such as the commands that show what is wrong.
        """
        if self._held[self._find_holder(peer)] < self.most - self.kept:
            return None
        held = self._held[self._find_holder(peer)]
        return (
            f"the daemon is busy: {self._say_holder(self._find_holder(peer))} has {held} of "
            f"{count(self.most, 'connection')}, the most one program may have; close one of them"
        )

    def _find_holder(self, peer: Peer) -> tuple[str, int]:
        match peer.standing:
            case ProcessOwner(mark=mark):
                return "run", mark
            case Unknown():
                return "unknown", 0
        return ("process", peer.pid or 0) if peer.uid == self._uid else ("user", peer.uid)

    def _say_largest(self) -> str:
        if not self._held:
            return ""
        holder, held = self._held.most_common(1)[0]
        return f", {held} of them by {self._say_holder(holder)}"

    def _say_holder(self, holder: tuple[str, int]) -> str:
        kind, number = holder
        match kind:
            case "run":
                return f"run {self._names.get(number, number)}"
            case "process":
                return f"process {number}"
            case "user":
                return f"user {number}"
        return "processes that are gone"

    def view(self) -> dict[str, Any]:
        """View the connections, their limits and their largest holders, for `doctor`."""
        largest = [
            {
                "holder": self._say_holder(holder),
                "run": self._names.get(holder[1]) if holder[0] == "run" else None,
                "connections": held,
            }
            for holder, held in self._held.most_common(3)
        ]
        return {
            "open": self.total,
            "most": self.most,
            "kept_for_people": self.kept,
            "most_of_one_run": MOST_OF_ONE_RUN,
            "refused": self._refused,
            "largest": largest,
        }


class TcpConnections:
    """The places of the TCP port, separate from those of the control socket. The caller is unknown until a request was
    read, so all connections are equal. The time limits of protocol.py end idle connections."""

    def __init__(self) -> None:
        most, self.most_refused_open = find_most()
        self.most = max(FEWEST_CONNECTIONS, int(most * TCP_SHARE))
        self.total = 0
        self._refused = 0

    def admit(self, peer: object) -> str | None:
        """Take a place for a connection. Returns None, or the reason why there is no place."""
        if self.total < self.most:
            self.total += 1
            return None
        self._refused += 1
        return f"the daemon is busy: all {count(self.most, 'connection')} of its TCP port are in use; call again later"

    def release(self, peer: object) -> None:
        """Release the place of a connection that has ended."""
        self.total -= 1

    def view(self) -> dict[str, Any]:
        """View the connections and their limit, for `doctor`."""
        return {"open": self.total, "most": self.most, "refused": self._refused}


def find_most() -> tuple[int, int]:
    """Compute the most connections that the limit on open files allows, and the most refused clients in addition."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MOST_CONNECTIONS, MOST_REFUSED_OPEN
    share = int((soft - len(os.listdir("/dev/fd"))) * DESCRIPTOR_SHARE)
    parting = max(0, min(MOST_REFUSED_OPEN, int(share * REFUSED_SHARE)))
    return max(FEWEST_CONNECTIONS, min(MOST_CONNECTIONS, share - parting)), parting
