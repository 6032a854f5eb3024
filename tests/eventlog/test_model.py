"""Random histories of the log against a model of plain lists: appends, keys, conflicts, snapshots, restarts, slices."""

import shutil
import tempfile
from pathlib import Path

import pytest
from eventlog.engines import ENGINES
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from wakeful.eventlog.contract import Append, Appended, Conflict, Draft

SESSIONS = st.sampled_from(["a", "b", "c"])
PAYLOADS = st.lists(st.binary(max_size=8), min_size=1, max_size=3)
KEYS = st.none() | st.sampled_from(["k1", "k2", "k3"])
MOMENTS = st.integers(0, 30)


class LogMachine(RuleBasedStateMachine):
    engine = "sqlite"

    @initialize()
    def start(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="wakeful-model-"))
        self.log = ENGINES[self.engine](self.folder)
        self.records: dict[str, list[tuple[int, bytes]]] = {}
        self.keys: dict[tuple[str, str], Appended] = {}
        self.order: list[tuple[str, int]] = []
        self.snapshots: dict[str, dict[int, bytes]] = {}

    def teardown(self) -> None:
        if hasattr(self, "log"):
            assert self.log.verify().findings == ()
            self.log.close()
            shutil.rmtree(self.folder)

    @rule(session=SESSIONS, other=SESSIONS, payloads=PAYLOADS, key=KEYS, at=MOMENTS, off=st.sampled_from([0, 0, 0, 0, -1, 1]))
    def append(self, session: str, other: str, payloads: list[bytes], key: str | None, at: int, off: int) -> None:
        """One call over two sessions (or twice the same); `off` makes it expect a wrong head."""
        first_head = len(self.records.get(session, []))
        second_head = len(self.records.get(other, [])) + (len(payloads) if other == session else 0)
        drafts = tuple(Draft("kind", payload, "model") for payload in payloads)
        call = [Append(session, first_head, drafts, key), Append(other, second_head + off, drafts[:1])]
        if key is not None and (session, key) in self.keys:
            landed = self.keys[session, key]
            expected = (Appended(session, landed.first_seq, landed.last_seq, duplicate=True), Appended(other, 0, 0, duplicate=True))
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
        self.log = ENGINES[self.engine](self.folder)

    @rule(session=SESSIONS, since=MOMENTS, until=MOMENTS, low=st.integers(0, 9), span=st.integers(0, 20), newest_first=st.booleans())
    def slice(self, session: str, since: int, until: int, low: int, span: int, newest_first: bool) -> None:
        expected = [
            (seq, at, payload)
            for seq, (at, payload) in enumerate(self.records.get(session, []), 1)
            if since <= at <= until and low <= seq <= low + span
        ]
        found = self.log.read(session, low, low + span, since, until, newest_first=newest_first)
        assert [(r.seq, r.at, r.payload) for r in found] == (expected[::-1] if newest_first else expected)

    @rule(position=st.integers(0, 40), limit=st.integers(1, 10))
    def follow(self, position: int, limit: int) -> None:
        _, found = self.log.read_after(position, limit)
        assert [(record.session, record.seq) for record in found] == self.order[position : position + limit]

    @invariant()
    def heads_and_tails_agree(self) -> None:
        if not hasattr(self, "log"):
            return
        assert {name: head.seq for name, head in self.log.heads().items()} == {name: len(some) for name, some in self.records.items()}
        for name, snapshot, tail in self.log.tails():
            start = snapshot.seq if snapshot else 0
            assert start == max(self.snapshots.get(name, {0: b""}))
            assert snapshot is None or snapshot.state == self.snapshots[name][start]
            assert [(record.at, record.payload) for record in tail] == self.records[name][start:]
        for (name, key), landed in self.keys.items():
            assert self.log.find_key(name, key) == landed


LogMachine.TestCase.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
TestLogMachine = LogMachine.TestCase
