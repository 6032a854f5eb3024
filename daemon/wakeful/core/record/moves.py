"""The records of a session that moves to another host: frozen here, departed, and arrived there.

Part of the union in events.py.
"""

from __future__ import annotations

from msgspec import Struct


class SessionFrozen(Struct, frozen=True, kw_only=True):
    """Leaving for another host: nothing is written here any more until the receipt comes (rule 45)."""

    move: str
    to: str


class SessionThawed(Struct, frozen=True, kw_only=True):
    """The move was given up: the bundle that was cut must not be loaded."""

    move: str
    reason: str | None = None


class SessionDeparted(Struct, frozen=True, kw_only=True):
    """The receipt came back: the session lives there, and this is its record.
    Recorded for receipts that older releases gave."""

    move: str
    receipt: str


class SessionArrived(Struct, frozen=True, kw_only=True):
    """The other end of a move: from here on this is the session. `store` is the log that it lives in now;
    None in logs of older releases.

    The host it left takes this very record over: both logs stay one history, and the session can come home.
    `is_foreign`: the records before this one were made elsewhere. `needs_trust`: why its spec may not count here,
    in words.
    """

    move: str
    origin: str
    store: str | None = None
    is_foreign: bool = False
    needs_trust: str | None = None
