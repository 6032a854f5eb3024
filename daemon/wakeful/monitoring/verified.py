"""When the log was last verified, and with which result: a small file of the state folder.

`wakeful verify` recomputes every hash in a process of its own, with or without a daemon, and leaves this note;
`wakeful health` reads it. A note that cannot be read is none.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
from msgspec import Struct

FILE = "verified.json"


class Verified(Struct, frozen=True, kw_only=True):
    """`at` is in microseconds, `findings` the number of records or spans that did not hold."""

    at: int
    records: int
    findings: int


def write_verified(state: Path, verified: Verified) -> None:
    """Replace the note. Raises OSError where the folder may not be written."""
    fresh = state / f"{FILE}.new"
    file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        os.write(file, msgspec.json.encode(verified))
    finally:
        os.close(file)
    fresh.replace(state / FILE)


def read_verified(state: Path) -> Verified | None:
    """The last verification; None where nobody knows of one."""
    try:
        return msgspec.json.decode((state / FILE).read_bytes(), type=Verified)
    except (OSError, msgspec.DecodeError):
        return None
