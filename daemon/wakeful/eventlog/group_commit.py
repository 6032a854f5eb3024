"""The plan of one group commit: queued calls in, rows and answers out. Pure; every engine plans its writes here.

An engine fills a group with the calls that wait, then writes the rows in one step. The group decides which call
conflicts, which one repeats a key, and the hash of every record. It writes nothing, and reads the content of the store
through `Known`. A refused call leaves the group as it was.

`choose_dropped` selects the snapshots of a session that are dropped when a new one is saved. To open a session, the
newest snapshot is needed. A look at the past, a fork and a rewind need a snapshot shortly before any seq. So the oldest
and the newest few stay. Between them snapshots become sparser with age: the gap around a seq is about an eighth of its
age, and at most 1,000 records, which fold in some 7 ms. A session of a million events keeps about a thousand snapshots,
a few megabytes next to its gigabyte.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Protocol

import msgspec

from wakeful.eventlog import chain, imports
from wakeful.eventlog.contract import Append, Appended, BadAppend, BadImport, Conflict, Head, Import, Record

NEWEST_KEPT = 4
SPACING = 8
WIDEST_GAP = 1_000

# The columns: position, session key, seq, at, kind, author, run, parent, rationale, payload hash, chain hash.
EventRow = tuple[int, int, int, int, str, str, int | None, str | None, str | None, bytes, bytes]


class SessionHead(msgspec.Struct, frozen=True, gc=False):
    """The end of a session, as its engine knows it. `key` is the store's own number for the session."""

    key: int
    seq: int
    at: int
    hash: bytes


class Known(Protocol):
    """The content of the store before this group."""

    @property
    def imports(self) -> Mapping[str, Import]:
        """The imports that were begun and not finished, by session."""

    def read_hashes(self, session: str, first: int, last: int) -> list[bytes]: ...

    def tip(self, session: str) -> SessionHead | None: ...

    def find_key(self, session: str, key: str) -> Appended | None: ...


class Rows:
    """The rows of a group by table, each in the order of its columns."""

    __slots__ = ("clock_steps", "events", "finished", "imported", "keys", "payloads", "sessions")

    def __init__(self) -> None:
        self.sessions: list[tuple[int, str]] = []
        self.events: list[EventRow] = []
        self.payloads: list[tuple[int, bytes | None]] = []
        self.keys: list[tuple[int, str, int, int, bytes | None]] = []
        self.clock_steps: list[tuple[int, int]] = []
        # Sessions whose import ends with this group.
        self.finished: list[tuple[str]] = []
        # Spans (session, first seq, last seq) that were imported in one step.
        self.imported: list[tuple[str, int, int]] = []

    def sizes(self) -> tuple[int, ...]:
        return tuple([len(getattr(self, table)) for table in self.__slots__])

    def shrink(self, sizes: tuple[int, ...]) -> None:
        for table, size in zip(self.__slots__, sizes, strict=True):
            del getattr(self, table)[size:]


class Group:
    """Calls that will be committed together, after `position` records and `sessions` sessions."""

    def __init__(self, known: Known, position: int, sessions: int) -> None:
        self._known = known
        self._position = position
        self._sessions = sessions
        self._appended: dict[tuple[str, str], Appended] = {}
        self.rows = Rows()
        self.tips: dict[str, SessionHead] = {}

    @property
    def position(self) -> int:
        return self._position + len(self.rows.events)

    @property
    def sessions(self) -> int:
        return self._sessions + len(self.rows.sessions)

    @property
    def hashes(self) -> list[bytes]:
        """The chain hashes of the group's records, in the order of recording."""
        return [row[-1] for row in self.rows.events]

    def add(self, appends: Sequence[Append], at: int) -> tuple[Appended, ...]:
        """Add one whole call, or raise and add nothing of it.

        Raises Conflict, BadAppend, or the error of a value that cannot be hashed. A repeated key is checked before a
        conflict, because a repeated call expects the head that its first attempt saw.
        """
        repeated = self._find_repeated(appends)
        if repeated is not None:
            return repeated
        # A single draft adds its rows last, so there is nothing to undo.
        if len(appends) == 1 and len(appends[0].drafts) == 1:
            return (self._add_append(appends[0], at),)
        sizes, tips = self.rows.sizes(), [(append.session, self.tips.get(append.session)) for append in appends]
        try:
            return tuple([self._add_append(append, at) for append in appends])
        except BaseException:
            self._undo(sizes, tips, appends)
            raise

    def add_records(self, session: str, records: Sequence[Record], *, is_whole: bool = False) -> Head:
        """Add a whole batch of an import, or raise Conflict or BadImport and add nothing of it.

        `is_whole` means that the batch is the whole import, and was not announced. Each batch has its own group,
        because it continues the records that `Known` has.
        """
        if not records:
            raise BadImport(f"session {session}: an import of no records; give it at least one")
        tip = self._known.tip(session)
        head, first = (tip.seq if tip is not None else 0), records[0].seq
        if not 1 <= first <= head + 1:
            raise BadImport(
                f"session {session}: records from seq {first} on, but its log ends at {head}; "
                "import the records in between first"
            )
        held = self._known.read_hashes(session, first - 1, first + len(records) - 1)
        previous = chain.NOTHING if first == 1 else held.pop(0)
        announced = self._known.imports.get(session)
        if is_whole:
            announced = imports.announce_whole(session, records, announced)
        imports.check_records(session, records, announced, previous, held)
        fresh = records[len(held) :]
        if is_whole and fresh:
            self.rows.imported.append((session, fresh[0].seq, fresh[-1].seq))
        if fresh:
            self.tips[session] = self._add_records(session, fresh, tip)
        newest = self.tip(session)
        assert newest is not None
        return Head(max(head, records[-1].seq), newest.hash)

    def tip(self, session: str) -> SessionHead | None:
        return self.tips.get(session) or self._known.tip(session)

    def _add_append(self, append: Append, at: int) -> Appended:
        session = append.session
        if not append.drafts:
            raise BadAppend(f"session {session}: an append without drafts; give it at least one")
        tip = self.tip(session)
        begun = self._known.imports.get(session)
        if begun is not None and not (
            append.finishes_import and tip is not None and (tip.seq, tip.hash) == (begun.last_seq, begun.head)
        ):
            raise Conflict(
                f"session {session}: its import is not finished, so nothing follows its last record yet; "
                "finish it first"
            )
        is_new = tip is None
        if tip is None:
            tip = SessionHead(self.sessions + 1, 0, at, chain.NOTHING)
        if tip.seq != append.expected_seq:
            raise Conflict(
                f"session {session}: the append expected head {append.expected_seq}, the log is at {tip.seq}; "
                "read again and decide again"
            )
        self.tips[session] = self._add_drafts(append, tip, at)
        if append.finishes_import:
            self.rows.finished.append((session,))
        if is_new:
            self.rows.sessions.append((tip.key, session))
        if at < tip.at:
            self.rows.clock_steps.append((tip.key, tip.seq + 1))
        landed = Appended(session, tip.seq + 1, tip.seq + len(append.drafts))
        if append.key is not None:
            self._keep_key(append.key, tip.key, landed, append.digest)
        return landed

    def _add_drafts(self, append: Append, tip: SessionHead, at: int) -> SessionHead:
        session, key, seq, previous = append.session, tip.key, tip.seq, tip.hash
        events, payloads, position = self.rows.events, self.rows.payloads, self.position
        for draft in append.drafts:
            seq += 1
            position += 1
            kind, author, run, parent, rationale = draft.kind, draft.author, draft.run, draft.parent, draft.rationale
            digest = chain.hash_bytes(draft.payload)
            previous = chain.link_record(previous, session, seq, at, kind, author, run, parent, rationale, digest)
            events.append((position, key, seq, at, kind, author, run, parent, rationale, digest, previous))
            payloads.append((position, draft.payload))
        return SessionHead(key, seq, at, previous)

    def _add_records(self, session: str, records: Sequence[Record], tip: SessionHead | None) -> SessionHead:
        key, latest = (tip.key, tip.at) if tip is not None else (self.sessions + 1, records[0].at)
        if tip is None:
            self.rows.sessions.append((key, session))
        position = self.position
        for record in records:
            position += 1
            self.rows.events.append(
                (position, key, record.seq, record.at, record.kind, record.author, record.run, record.parent,
                 record.rationale, record.payload_hash, record.hash)
            )  # fmt: skip
            self.rows.payloads.append((position, record.payload))
            if record.at < latest:
                self.rows.clock_steps.append((key, record.seq))
            latest = record.at
        return SessionHead(key, records[-1].seq, latest, records[-1].hash)

    def _keep_key(self, text: str, session: int, landed: Appended, digest: bytes | None) -> None:
        if (landed.session, text) in self._appended:
            raise BadAppend(f"session {landed.session}: key {text!r} twice in one call; a key names one append")
        self._appended[landed.session, text] = landed
        self.rows.keys.append((session, text, landed.first_seq, landed.last_seq, digest))

    def _undo(
        self, sizes: tuple[int, ...], tips: list[tuple[str, SessionHead | None]], appends: Sequence[Append]
    ) -> None:
        self.rows.shrink(sizes)
        for session, tip in tips:
            if tip is None:
                self.tips.pop(session, None)
            else:
                self.tips[session] = tip
        for append in appends:
            if append.key is not None:
                self._appended.pop((append.session, append.key), None)

    def _find_repeated(self, appends: Sequence[Append]) -> tuple[Appended, ...] | None:
        for append in appends:
            if append.key is not None:
                break
        else:
            return None
        found = [self._find_key(append) for append in appends]
        if not any(found):
            return None
        return tuple(
            msgspec.structs.replace(landed, duplicate=True)
            if landed
            else Appended(append.session, 0, 0, duplicate=True)
            for append, landed in zip(appends, found, strict=True)
        )

    def _find_key(self, append: Append) -> Appended | None:
        if append.key is None:
            return None
        return self._appended.get((append.session, append.key)) or self._known.find_key(append.session, append.key)


def choose_dropped(seqs: Sequence[int]) -> list[int]:
    """Choose the snapshots to drop, from the ascending seqs of all snapshots of a session.

    A snapshot is dropped if the gap that it leaves is small compared with its age.
    """
    dropped: list[int] = []
    if not seqs:
        return dropped
    newest, before = seqs[-1], seqs[0]
    for seq, after in pairwise(seqs[1 : 1 - NEWEST_KEPT]):
        gap = after - before
        if gap <= WIDEST_GAP and gap * SPACING <= newest - after:
            dropped.append(seq)
        else:
            before = seq
    return dropped
