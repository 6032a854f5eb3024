"""The time and result of the last verification of the log, in a small file of the state folder.

`wakeful verify` recomputes every hash in a separate process, with or without a daemon, and writes the file. `wakeful
health` reads it. A file that cannot be read is ignored. This is a separate module because the command line writes the
file without importing the rest of monitoring.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
from msgspec import Struct

FILE = "verified.json"


class Verified(Struct, frozen=True, kw_only=True):
    """The result of a verification. `at` is in microseconds. `findings` is the number of records or spans that are
    wrong.
    """

    at: int
    records: int
    findings: int


def write_verified(state: Path, verified: Verified) -> None:
    """Replace the file. Raises OSError if the folder cannot be written."""
    fresh = state / f"{FILE}.new"
    file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        os.write(file, msgspec.json.encode(verified))
    finally:
        os.close(file)
    fresh.replace(state / FILE)


def read_verified(state: Path) -> Verified | None:
    """Read the result of the last verification. None if there is none, or the file cannot be read."""
    try:
        return msgspec.json.decode((state / FILE).read_bytes(), type=Verified)
    except (OSError, msgspec.DecodeError):
        return None
