"""Random histories of the log against a model of plain lists.

The steps are appends, keys, conflicts, snapshots, restarts, slices, imports from a second log in pieces, and payloads
that are erased, archived and restored.
"""

import shutil
import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from eventlog.engines import ENGINES
from wakeful.eventlog.contract import Append, Appended, Conflict, Draft

SESSIONS = st.sampled_from(["a", "b", "c"])
ALL_SESSIONS = st.sampled_from(["a", "b", "far"])
PAYLOADS = st.lists(st.binary(max_size=8), min_size=1, max_size=3)
KEYS = st.none() | st.sampled_from(["k1", "k2", "k3"])
MOMENTS = st.integers(0, 30)


class LogMachine(RuleBasedStateMachine):
    engine = "sqlite"

    @initialize()
    def start(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="wakeful-model-"))
        self.log = ENGINES[self.engine].open(self.folder / "here")
        self.records: dict[str, list[tuple[int, bytes]]] = {}
        self.keys: dict[tuple[str, str], Appended] = {}
        self.order: list[tuple[str, int]] = []
        self.snapshots: dict[str, dict[int, bytes]] = {}
        self.erased: set[tuple[str, int]] = set()
        self.archived: dict[str, tuple[int, int]] = {}
        # A session that grows in another log and is imported in pieces. While a piece is missing, it ends where it
        # ended before.
        self.elsewhere = ENGINES[self.engine].open(self.folder / "elsewhere")
        self.is_importing = False
        self.end = 0

    def teardown(self) -> None:
        if hasattr(self, "log"):
            assert self.log.verify().findings == ()
            self.log.close()
            self.elsewhere.close()
            shutil.rmtree(self.folder)

    @rule(
        session=SESSIONS,
        other=SESSIONS,
        payloads=PAYLOADS,
        key=KEYS,
        at=MOMENTS,
        off=st.sampled_from([0, 0, 0, 0, -1, 1]),
    )
    def append(self, session: str, other: str, payloads: list[bytes], key: str | None, at: int, off: int) -> None:
        """One call appends to two sessions, or twice to the same one. `off` makes it expect a wrong head."""
        first_head = len(self.records.get(session, []))
        second_head = len(self.records.get(other, [])) + (len(payloads) if other == session else 0)
        drafts = tuple(Draft("kind", payload, "model") for payload in payloads)
        call = [Append(session, first_head, drafts, key), Append(other, second_head + off, drafts[:1])]
        if key is not None and (session, key) in self.keys:
            landed = self.keys[session, key]
            expected = (
                Appended(session, landed.first_seq, landed.last_seq, duplicate=True),
                Appended(other, 0, 0, duplicate=True),
            )
            assert self.log.append_blocking(call, at) == expected
            return
        if off:
            with pytest.raises(Conflict):
                self.log.append_blocking(call, at)
            return
        landed, second = self.log.append_blocking(call, at)
        assert landed == Appended(session, first_head + 1, first_head + len(payloads))
        assert second == Appended(other, second_head + 1, second_head + 1)
        for name, some in ((session, payloads), (other, payloads[:1])):
            for payload in some:
                self.records.setdefault(name, []).append((at, payload))
                self.order.append((name, len(self.records[name])))
        if key is not None:
            self.keys[session, key] = landed

    @rule(session=SESSIONS, back=st.integers(0, 5), state=st.binary(max_size=10))
    def save_snapshot(self, session: str, back: int, state: bytes) -> None:
        seq = len(self.records.get(session, [])) - back
        if seq >= 1:
            self.log.save_snapshot_blocking(session, seq, state)
            self.snapshots.setdefault(session, {})[seq] = state

    @rule()
    def restart(self) -> None:
        self.log.close()
        self.log = ENGINES[self.engine].open(self.folder / "here")

    @rule(payloads=PAYLOADS, at=MOMENTS)
    def grow_elsewhere(self, payloads: list[bytes], at: int) -> None:
        if not self.is_importing:
            drafts = tuple(Draft("kind", payload, "model") for payload in payloads)
            self.elsewhere.append_blocking([Append("far", self.elsewhere.head("far").seq, drafts)], at)

    @rule(count=st.integers(1, 4), overlap=st.integers(0, 2))
    def bring(self, count: int, overlap: int) -> None:
        """Import one piece of the missing records, beginning with some that are here already."""
        head, brought = self.elsewhere.head("far"), self.records.setdefault("far", [])
        if head.seq == 0:
            return
        first = self.log.begin_import("far", head.seq, head.hash, extend=True)
        assert first == len(brought) + 1
        if first > head.seq:
            return
        start = max(1, first - overlap)
        piece = list(self.elsewhere.read("far", start, first + count - 1))
        self.log.import_records("far", piece)
        for record in piece[first - start :]:
            assert record.payload is not None
            brought.append((record.at, record.payload))
            self.order.append(("far", record.seq))
        self.is_importing = len(brought) < head.seq
        if self.is_importing:
            with pytest.raises(Conflict):
                self.log.append_blocking([Append("far", len(brought), (Draft("kind", b"1", "model"),))], 1)
        else:
            assert self.log.finish_import("far") == head
            self.end = head.seq

    @rule(session=ALL_SESSIONS, seqs=st.sets(st.integers(1, 20), max_size=3))
    def erase(self, session: str, seqs: set[int]) -> None:
        seqs = {seq for seq in seqs if seq <= len(self.records.get(session, []))}
        gone = sum(self.payload_of(session, seq) is not None for seq in seqs)
        assert self.log.erase(session, seqs) == gone
        self.erased |= {(session, seq) for seq in seqs}
        if seqs:
            kept = self.snapshots.get(session, {})
            self.snapshots[session] = {seq: state for seq, state in kept.items() if seq < min(seqs)}

    @rule(session=ALL_SESSIONS, through=st.integers(1, 12))
    def archive(self, session: str, through: int) -> None:
        through = min(through, len(self.records.get(session, [])))
        if through:
            moved = sum(self.payload_of(session, seq) is not None for seq in range(1, through + 1))
            assert self.log.archive(session, through) == moved
            self.archived[session] = (1, max(through, self.archived.get(session, (1, 0))[1]))

    @rule(session=ALL_SESSIONS, count=st.integers(1, 12))
    def restore_payloads(self, session: str, count: int) -> None:
        first, last = self.archived.get(session, (1, 0))
        records = list(self.log.read(session, first, min(first + count - 1, last)))
        whole = [
            msgspec.structs.replace(record, payload=self.records[session][record.seq - 1][1]) for record in records
        ]
        restored = sum((session, record.seq) not in self.erased for record in whole)
        assert self.log.restore_payloads(session, whole) == restored
        if whole and whole[-1].seq < last:
            self.archived[session] = (whole[-1].seq + 1, last)
        elif whole:
            del self.archived[session]

    def payload_of(self, session: str, seq: int) -> bytes | None:
        first, last = self.archived.get(session, (1, 0))
        is_gone = (session, seq) in self.erased or first <= seq <= last
        return None if is_gone else self.records[session][seq - 1][1]

    @rule(
        session=ALL_SESSIONS,
        since=MOMENTS,
        until=MOMENTS,
        low=st.integers(0, 9),
        span=st.integers(0, 20),
        newest_first=st.booleans(),
    )
    def slice(self, session: str, since: int, until: int, low: int, span: int, newest_first: bool) -> None:
        expected = [
            (seq, at, self.payload_of(session, seq))
            for seq, (at, _) in enumerate(self.records.get(session, []), 1)
            if since <= at <= until and low <= seq <= low + span
        ]
        found = self.log.read(session, low, low + span, since, until, newest_first=newest_first)
        assert [(r.seq, r.at, r.payload) for r in found] == (expected[::-1] if newest_first else expected)

    @rule(position=st.integers(0, 40), limit=st.integers(1, 10))
    def follow(self, position: int, limit: int) -> None:
        _, found = self.log.read_after(position, limit)
        own = [place for place in self.order[position:] if place[0] != "far"]
        assert [(record.session, record.seq) for record in found] == own[:limit]

    @invariant()
    def heads_and_tails_agree(self) -> None:
        if not hasattr(self, "log"):
            return
        shown = {name: some[: self.end] if name == "far" else some for name, some in self.records.items()}
        shown = {name: some for name, some in shown.items() if some}
        assert {name: head.seq for name, head in self.log.heads().items()} == {
            name: len(some) for name, some in shown.items()
        }
        assert [begun.session for begun in self.log.imports()] == (["far"] if self.is_importing else [])
        tails = {name: (snapshot, tail) for name, snapshot, tail in self.log.tails()}
        assert tails.keys() == shown.keys()
        for name, (snapshot, tail) in tails.items():
            start = snapshot.seq if snapshot else 0
            assert start == max(self.snapshots.get(name) or {0: b""})
            assert snapshot is None or snapshot.state == self.snapshots[name][start]
            expected = [(at, self.payload_of(name, seq)) for seq, (at, _) in enumerate(shown[name], 1)]
            assert [(record.at, record.payload) for record in tail] == expected[start:]
        for (name, key), landed in self.keys.items():
            assert self.log.find_key(name, key) == landed


LogMachine.TestCase.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
TestLogMachine = LogMachine.TestCase


class MemoryLogMachine(LogMachine):
    engine = "memory"


MemoryLogMachine.TestCase.settings = settings(max_examples=50, stateful_step_count=25, deadline=None)
TestMemoryLogMachine = MemoryLogMachine.TestCase
