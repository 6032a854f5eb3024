"""The records of a session that moves to another host: frozen here, departed, and arrived there.

Part of the union in events.py.
"""

from __future__ import annotations

from msgspec import Struct


class SessionFrozen(Struct, frozen=True, kw_only=True):
    """The session leaves for another host. No other record follows until the receipt comes or the move is given up
    (rule 45)."""

    move: str
    to: str


class SessionThawed(Struct, frozen=True, kw_only=True):
    """The move was given up. The bundle that was made for it must not be loaded."""

    move: str
    reason: str | None = None


class SessionDeparted(Struct, frozen=True, kw_only=True):
    """The receipt came back: the session lives on the other host now. Recorded only for receipts of older releases."""

    move: str
    receipt: str


class SessionArrived(Struct, frozen=True, kw_only=True):
    """The session arrived on the host it moved to, and lives there from this record on.

    The host that it left copies this record, so both logs stay one history and the session can come back.
    - `store`: the log that the session lives in now, None in logs of older releases.
    - `is_foreign`: the records before this one were made on another host.
    - `needs_trust`: why its spec does not count here before a person has reviewed it, as text.
    """

    move: str
    origin: str
    store: str | None = None
    is_foreign: bool = False
    needs_trust: str | None = None
