"""The hashes that make loss and change visible. Pure: bytes in, bytes out.

Every record commits to the record before it in its session and to the hash of its payload, never to the payload:
an erased payload leaves the chain whole. Every flush commits to all records before it, of all sessions, in the
order they were written: that is the `roll`, which the anchor keeps outside the store. A changed encoding would
break every log in the field, so `FORMAT` is part of what is hashed.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

import msgspec

FORMAT = 1
NOTHING = bytes(32)  # what the first record of a session and the first flush of a store follow

_encode = msgspec.msgpack.Encoder().encode
# Copied, never fed: OpenSSL 3 looks its algorithm up for every new one, 1.7 us beside 0.5 us for a copy.
_EMPTY = sha256()


def hash_bytes(content: bytes) -> bytes:
    digest = _EMPTY.copy()
    digest.update(content)
    return digest.digest()


def link_record(
    previous: bytes,
    session: str,
    seq: int,
    at: int,
    kind: str,
    author: str,
    run: int | None,
    parent: str | None,
    rationale: str | None,
    payload_hash: bytes,
) -> bytes:
    """The chain hash of a record. The array is unambiguous: no two different records share an encoding."""
    fields = (FORMAT, previous, session, seq, at, kind, author, run, parent, rationale, payload_hash)
    return hash_bytes(_encode(fields))


def roll_forward(roll: bytes, hashes: Iterable[bytes]) -> bytes:
    """The roll after a flush of the records with these chain hashes."""
    return sha256(roll + b"".join(hashes)).digest()
