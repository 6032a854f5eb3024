"""The engine of the log in memory: for tests, and as the smallest complete example of an engine.

A `MemoryStore` holds the records, and a `MemoryLog` is one opening of it. A store that is closed and opened again is
unchanged. Nothing survives the process, so "durable" means that the store holds it. The engine plans every write with
`group_commit` and `imports`, as the SQLite engine does. It implements every port except `LogBackup`.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from wakeful.eventlog import chain, imports
from wakeful.eventlog.contract import (
    Append,
    Appended,
    BadAppend,
    BadImport,
    Conflict,
    Durable,
    Finding,
    Head,
    Import,
    Progress,
    Record,
    Report,
    Snapshot,
    Span,
    StoreClosed,
    StoreDamaged,
    StoreGone,
)
from wakeful.eventlog.group_commit import Group, SessionHead, choose_dropped
from wakeful.eventlog.search_text import Query, has_phrases, parse_phrases, read_text

_INT64 = range(-(2**63), 2**63)


@dataclass
class _Session:
    key: int
    records: list[Record] = field(default_factory=list)
    keys: dict[str, Appended] = field(default_factory=dict)
    snapshots: dict[int, Snapshot] = field(default_factory=dict)
    # A record without a payload is erased if its seq is in here, else archived.
    erased: set[int] = field(default_factory=set)
    archived: Span | None = None

    @property
    def head(self) -> Head:
        return Head(self.records[-1].seq, self.records[-1].hash)


class MemoryStore:
    """The content of a log. Every access holds `lock`."""

    def __init__(self) -> None:
        self.id = secrets.token_hex(16)
        self.lock = threading.RLock()
        # The order is that of the keys, and so that of the sessions' first records.
        self.sessions: dict[str, _Session] = {}
        # The place of every record in the order of recording. Its position is its index + 1.
        self.order: list[tuple[str, int]] = []
        self.begun: dict[str, Import] = {}
        self.imported: dict[str, list[Span]] = {}
        self.inert: set[str] = set()

    # The content before a group, for its plan (group_commit.Known).

    @property
    def imports(self) -> Mapping[str, Import]:
        return self.begun

    def read_hashes(self, session: str, first: int, last: int) -> list[bytes]:
        held = self.sessions.get(session)
        return [record.hash for record in held.records[max(0, first - 1) : last]] if held is not None else []

    def tip(self, session: str) -> SessionHead | None:
        held = self.sessions.get(session)
        return SessionHead(held.key, held.head.seq, held.records[-1].at, held.head.hash) if held is not None else None

    def find_key(self, session: str, key: str) -> Appended | None:
        held = self.sessions.get(session)
        return held.keys.get(key) if held is not None else None

    # Writing

    def plan(self) -> Group:
        return Group(self, len(self.order), len(self.sessions))

    def write(self, group: Group) -> None:
        """Store the rows of a group."""
        rows = group.rows
        for key, session in rows.sessions:
            self.sessions[session] = _Session(key)
        names = {held.key: session for session, held in self.sessions.items()}
        for row, (_, payload) in zip(rows.events, rows.payloads, strict=True):
            _, key, seq, at, kind, author, run, parent, rationale, payload_hash, link = row
            session = names[key]
            record = Record(
                session, seq, at, kind, author, run, parent, rationale, payload, payload_hash, link
            )  # fmt: skip
            self.sessions[session].records.append(record)
            self.order.append((session, seq))
            if payload is None:
                self.sessions[session].erased.add(seq)
        for key, text, first, last, digest in rows.keys:
            self.sessions[names[key]].keys[text] = Appended(names[key], first, last, digest=digest)
        for session, first, last in rows.imported:
            self.imported.setdefault(session, []).append(Span(first, last))
        for (session,) in rows.finished:
            self.begun.pop(session, None)
            self.inert.discard(session)

    def set_payload(self, held: _Session, seq: int, payload: bytes | None) -> None:
        held.records[seq - 1] = replace(held.records[seq - 1], payload=payload)

    # Which records are shown while imports are not finished

    def find_end(self, session: str) -> int:
        """Return the last seq that is shown. For a session under import, its last seq before that import began."""
        begun = self.begun.get(session)
        if begun is None:
            return len(self.sessions[session].records)
        spans = self.imported.get(session, [])
        return max((span.first for span in spans if span.last == begun.last_seq), default=1) - 1

    def list_shown(self) -> list[tuple[str, _Session, int]]:
        """List the sessions that are shown, each with its last shown seq."""
        ends = [(name, held, self.find_end(name)) for name, held in self.sessions.items() if name not in self.inert]
        return [(name, held, end) for name, held, end in ends if end]

    def is_imported(self, session: str, seq: int) -> bool:
        return any(span.first <= seq <= span.last for span in self.imported.get(session, ()))


class MemoryLog:
    """An open log (contract.DaemonLog)."""

    def __init__(self, store: MemoryStore | None = None) -> None:
        self._store = store or MemoryStore()
        self._is_closed = False

    @property
    def store(self) -> str:
        return self._store.id

    @property
    def read_only(self) -> str | None:
        return None

    def close(self) -> None:
        self._is_closed = True

    def _open(self) -> MemoryStore:
        if self._is_closed:
            raise StoreClosed("the log in memory is closed; open its store again")
        return self._store

    # EventLog: appending and snapshots

    def append(self, appends: Sequence[Append], at: int) -> Durable:
        self._open()
        durable = Durable(loop=asyncio.get_running_loop())
        try:
            durable.set_result(self.append_blocking(appends, at))
        except (Conflict, BadAppend) as error:
            durable.set_exception(error)
        return durable

    def append_blocking(self, appends: Sequence[Append], at: int) -> tuple[Appended, ...]:
        store = self._open()
        with store.lock:
            group = store.plan()
            try:
                _check_types(appends, at)
                landed = group.add(appends, at)
            except (TypeError, ValueError, OverflowError) as error:
                raise BadAppend(f"the append cannot be recorded: {error}") from error
            store.write(group)
            return landed

    def save_snapshot(self, session: str, seq: int, state: bytes) -> asyncio.Future[None]:
        self._open()
        saved: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            self.save_snapshot_blocking(session, seq, state)
            saved.set_result(None)
        except BadAppend as error:
            saved.set_exception(error)
        return saved

    def save_snapshot_blocking(self, session: str, seq: int, state: bytes) -> None:
        store = self._open()
        with store.lock:
            held = store.sessions.get(session)
            end = len(held.records) if held is not None else 0
            if held is None or not 0 < seq <= end:
                raise BadAppend(f"session {session}: a snapshot at seq {seq}, but its log ends at {end}")
            held.snapshots[seq] = Snapshot(seq, state, chain.hash_bytes(state))
            for dropped in choose_dropped(sorted(held.snapshots)):
                del held.snapshots[dropped]

    # LogReader

    def read(
        self,
        session: str,
        from_seq: int = 1,
        to_seq: int | None = None,
        since: int | None = None,
        until: int | None = None,
        kinds: Sequence[str] | None = None,
        run: int | None = None,
        author: str | None = None,
        limit: int | None = None,
        newest_first: bool = False,
    ) -> Iterator[Record]:
        store = self._open()
        with store.lock:
            held = store.sessions.get(session)
            records = held.records[max(1, from_seq) - 1 : to_seq] if held is not None else []
        found = [
            record
            for record in (reversed(records) if newest_first else records)
            if (since is None or record.at >= since)
            and (until is None or record.at <= until)
            and (kinds is None or record.kind in kinds)
            and (run is None or record.run == run)
            and (author is None or record.author == author)
        ]
        yield from found[:limit]

    def head(self, session: str) -> Head:
        store = self._open()
        with store.lock:
            held = store.sessions.get(session)
            return held.head if held is not None else Head(0, chain.NOTHING)

    def heads(self) -> dict[str, Head]:
        store = self._open()
        with store.lock:
            return {name: Head(end, held.records[end - 1].hash) for name, held, end in store.list_shown()}

    def find_key(self, session: str, key: str) -> Appended | None:
        store = self._open()
        with store.lock:
            return store.find_key(session, key)

    def find_keys(self, key: str) -> list[Appended]:
        store = self._open()
        with store.lock:
            return [held.keys[key] for held in store.sessions.values() if key in held.keys]

    def snapshot(self, session: str, at_or_before: int | None = None) -> Snapshot | None:
        store = self._open()
        with store.lock:
            held = store.sessions.get(session)
            seqs = [seq for seq in held.snapshots if at_or_before is None or seq <= at_or_before] if held else []
            return held.snapshots[max(seqs)] if held is not None and seqs else None

    def tails(self) -> Iterator[tuple[str, Snapshot | None, list[Record] | StoreDamaged]]:
        store = self._open()
        with store.lock:
            shown = [(name, self.snapshot(name), held.records[:end]) for name, held, end in store.list_shown()]
        for name, snapshot, records in shown:
            yield name, snapshot, records[snapshot.seq :] if snapshot is not None else records

    def position(self) -> int:
        return len(self._open().order)

    def read_after(
        self,
        position: int,
        limit: int,
        kinds: Sequence[str] | None = None,
        *,
        imported: bool = False,
        most_bytes: int | None = None,
    ) -> tuple[int, list[Record]]:
        store = self._open()
        records: list[Record] = []
        read_bytes = 0
        with store.lock:
            for reached, (session, seq) in enumerate(store.order[position:], position + 1):
                record = store.sessions[session].records[seq - 1]
                if (kinds is not None and record.kind not in kinds) or (
                    not imported and store.is_imported(session, seq)
                ):
                    continue
                records.append(record)
                read_bytes += len(record.payload or b"")
                if len(records) == limit or (most_bytes is not None and read_bytes >= most_bytes):
                    return reached, records
            return max(position, len(store.order)), records

    # PayloadStore

    def erase(self, session: str, seqs: Iterable[int]) -> int:
        store, wanted = self._open(), sorted(set(seqs))
        with store.lock:
            held = store.sessions.get(session)
            if held is None or not wanted:
                return 0
            missing = [seq for seq in wanted if not 1 <= seq <= len(held.records)]
            if missing:
                raise BadImport(
                    f"session {session}: there is no record at seq {missing[0]} whose payload could be erased"
                )
            there = sum(held.records[seq - 1].payload is not None for seq in wanted)
            for seq in wanted:
                store.set_payload(held, seq, None)
            held.erased.update(wanted)
            held.snapshots = {seq: one for seq, one in held.snapshots.items() if seq < wanted[0]}
            return there

    def archive(self, session: str, through_seq: int) -> int:
        store = self._open()
        with store.lock:
            held = store.sessions.get(session)
            end = len(held.records) if held is not None else 0
            if held is None or through_seq > end:
                raise BadImport(f"session {session}: an archive through seq {through_seq}, but its log ends at {end}")
            there = [record.seq for record in held.records[:through_seq] if record.payload is not None]
            for seq in there:
                store.set_payload(held, seq, None)
            held.archived = Span(1, max(through_seq, held.archived.last if held.archived is not None else 0))
            return len(there)

    def restore_payloads(self, session: str, records: Sequence[Record]) -> int:
        store = self._open()
        with store.lock:
            held = store.sessions.get(session)
            span = held.archived if held is not None else None
            records = [record for record in records if span is not None and span.first <= record.seq <= span.last]
            if held is None or span is None or not records:
                return 0
            if [record.seq for record in records] != list(range(span.first, span.first + len(records))):
                raise Conflict(
                    f"session {session}: its archived payloads begin at seq {span.first}; "
                    "restore them in order, without a gap"
                )
            for record in records:
                imports.check_payload(record, held.records[record.seq - 1].payload_hash)
            fresh = [record for record in records if record.seq not in held.erased]
            for record in fresh:
                store.set_payload(held, record.seq, record.payload)
            held.erased.update(record.seq for record in fresh if record.payload is None)
            held.archived = Span(records[-1].seq + 1, span.last) if records[-1].seq < span.last else None
            return len(fresh)

    def archived(self, session: str) -> Span | None:
        store = self._open()
        with store.lock:
            held = store.sessions.get(session)
            return held.archived if held is not None else None

    def sizes(self) -> dict[str, int]:
        store = self._open()
        with store.lock:
            return {
                name: sum(len(record.payload or b"") for record in held.records) for name, held, _ in store.list_shown()
            }

    # RecordImports

    def begin_import(self, session: str, last_seq: int, head: bytes, *, extend: bool = False) -> int:
        store = self._open()
        with store.lock:
            here, begun = self.head(session), store.begun.get(session)
            held = next(iter(store.read_hashes(session, last_seq, last_seq)), None)
            wanted = Import(session, last_seq, head, here.seq)
            match imports.judge_import(wanted, here, begun, held, extend=extend):
                case imports.Beginning.COMPLETE:
                    return last_seq + 1
                case imports.Beginning.RESUMED:
                    return here.seq + 1
                case imports.Beginning.NEW:
                    first = here.seq + 1
                case imports.Beginning.LONGER:
                    first = store.find_end(session) + 1
                    store.imported[session].pop()
            store.begun[session] = wanted
            store.imported.setdefault(session, []).append(Span(first, last_seq))
            return first

    def import_records(self, session: str, records: Sequence[Record]) -> Head:
        return self._import(session, records, is_whole=False)

    def import_next(self, session: str, record: Record) -> Head:
        return self._import(session, [record], is_whole=True)

    def _import(self, session: str, records: Sequence[Record], *, is_whole: bool) -> Head:
        store = self._open()
        with store.lock:
            group = store.plan()
            head = group.add_records(session, records, is_whole=is_whole)
            store.write(group)
            return head

    def finish_import(self, session: str, *, is_inert: bool = False) -> Head:
        store = self._open()
        with store.lock:
            here = self.head(session)
            imports.check_finished(store.begun.get(session), here)
            store.begun.pop(session, None)
            if is_inert:
                store.inert.add(session)
            else:
                store.inert.discard(session)
            return here

    def imports(self) -> tuple[Import, ...]:
        store = self._open()
        with store.lock:
            return tuple(replace(begun, seq=self.head(name).seq) for name, begun in sorted(store.begun.items()))

    # RecordSearch: every record is compared, the newest first

    def search(
        self,
        text: str,
        session: str | None = None,
        since: int | None = None,
        until: int | None = None,
        kinds: Sequence[str] | None = None,
        author: str | None = None,
        limit: int = 100,
    ) -> list[Record]:
        store, phrases = self._open(), parse_phrases(text)
        query = Query(text, session, since, until, kinds, author, limit)
        with store.lock:
            places = [(name, seq) for name, seq in reversed(store.order) if seq <= store.find_end(name)]
            records = [store.sessions[name].records[seq - 1] for name, seq in places]
        found = [record for record in records if query.admits(record) and has_phrases(read_text(record), phrases)]
        return found[: max(0, limit)]

    # LogVerification

    def verify(self, session: str | None = None, progress: Progress | None = None) -> Report:
        store = self._open()
        with store.lock:
            chosen = {name: held for name, held in store.sessions.items() if session in (None, name)}
            findings = tuple(
                Finding(f"session {name}, seq {seq}", what)
                for name, held in chosen.items()
                for seq, what in chain.find_damage(held.records)
            )
            records = sum(len(held.records) for held in chosen.values())
            erased = sum(len(held.erased) for held in chosen.values())
            gone = sum(record.payload is None for held in chosen.values() for record in held.records)
            snapshots = sum(len(held.snapshots) for held in chosen.values())
            if progress is not None:
                progress(records, records)
            return Report(
                len(chosen), records, erased, snapshots, findings, archived=gone - erased, unfinished=len(store.begun)
            )

    # StoreHealth

    def find_loss(self) -> StoreGone | None:
        """Return None, because there are no files that could be lost."""
        return None

    def read_anchored(self) -> int | None:
        """Return the newest position, because nothing here outlives the process."""
        return self.position()


def _check_types(appends: Sequence[Append], at: int) -> None:
    """Raise for values that another engine could not store. Hashing already refuses most other wrong values."""
    for append in appends:
        for draft in append.drafts:
            if not isinstance(draft.kind, str) or not isinstance(draft.author, str):
                raise TypeError(f"kind {draft.kind!r} and author {draft.author!r} must be text")
            if draft.run is not None and draft.run not in _INT64:
                raise OverflowError(f"run {draft.run} does not fit 64 bits")
    if at not in _INT64:
        raise OverflowError(f"the time {at} does not fit 64 bits")
