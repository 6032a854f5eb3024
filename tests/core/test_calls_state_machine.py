"""Calls in random order, with crashes between any two steps, against a small model of what sessions know.

The world around the real core is that of simulated_world.py. The model in knowledge_model.py applies each call to facts, memory, hand-off,
conversation, conflicts and checkpoints, in plain dicts. After every step both are compared, at the present seq and by
replay. A seeded slice runs with the suite. 2,000 histories of 50 steps run with `make test-long`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from msgspec.structs import replace

from core.knowledge_model import NOTHING, Account, Change, Knowledge, merge
from core.simulated_world import Recorded, World
from core.spec_builders import read, session, write
from wakeful.core.calls import call_types as calls
from wakeful.core.record import events as ev
from wakeful.core.record.erased_payloads import redact
from wakeful.core.record.fold import fold
from wakeful.core.record.observations import FilesWritten, SpecsRead
from wakeful.core.record.state import Moving, Session
from wakeful.core.spec.session import Settings
from wakeful.errors import CallerError
from wakeful.eventlog.contract import Record
from wakeful.history.conversation import SummaryRequest, make_compress, read_conversation
from wakeful.history.positions import fold_at

SPECS = {
    "a": session("a", read("s0"), write("oa", wake=True), retries=1),
    "b": session("b", read("oa"), read("s1", settle_seconds=0.0), conversation="continue"),
    "c": session("c", run=None),
}
KEYS = ("k0", "k1", "k2")
VALUES = ("red", "green", "blue")
WORDS = ("short", "longer words " * 12)
MARKS = ("m0", "m1")
NEW_NAMES = ("f0", "f1", "f2", "f3")
SIMPLE = (calls.Activate, calls.Resume, calls.Suspend, calls.Sleep, calls.Interrupt, calls.Cancel)

# The records that a closed log accepts: the one that opens it, the next stage of a move or an archive, and an erasure.
OPENED_BY = {
    "archived": {"session_restored"},
    "departed": {"session_archived"},
    "frozen": {"session_thawed", "session_departed"},
    "terminated": {"session_reopened", "session_archived", "payload_erased"},
}
# Kinds of records that only a call may cause.
KNOWN_BY_CALL = {
    "fact_set", "fact_retracted", "memory_set", "note_added", "message_added", "session_merged", "conflict_resolved",
    "conversation_compressed", "session_rewound", "checkpoint_marked", "session_migrated",
}  # fmt: skip


class Shortener:
    """A summariser whose summary is always shorter than the longer words."""

    name = "test"

    def summarise(self, request: SummaryRequest) -> str:
        return f"{len(request.messages)} said"


class LogOfWorld:
    """The world's log as the reading side of an engine, for the code that reads the past and the conversation."""

    def __init__(self, machine: CallsMachine) -> None:
        self.machine = machine

    def snapshot(self, session_id: str, at_or_before: int | None = None) -> None:
        return None

    def read(
        self, session_id: str, from_seq: int = 1, to_seq: int | None = None, kinds: Sequence[str] | None = None
    ) -> Iterator[Record]:
        for entry in self.machine.entries(session_id)[from_seq - 1 : to_seq]:
            if kinds is None or entry.kind in kinds:
                payload = None if (session_id, entry.seq) in self.machine.erased else entry.payload
                yield Record(
                    session_id, entry.seq, entry.at, entry.kind, entry.author, None, None, None, payload, b"", b""
                )


@dataclass(frozen=True)
class Expected:
    """The record that a call should leave, and its change in the model."""

    is_it: Callable[[Recorded], bool]
    change: Change


class CallsMachine(RuleBasedStateMachine):
    @initialize(concurrency=st.integers(1, 3))
    def begin(self, concurrency: int) -> None:
        self.accounts: dict[str, Account] = {}
        self.erased: set[tuple[str, int]] = set()
        self.folded: dict[str, Session] = {}
        self.by_session: dict[str, list[Recorded]] = {}
        self.read_until = 0
        self.calls_made = 0
        self.repeatable: list[tuple[calls.Call, str, str]] = []
        self.world = World(
            *SPECS.values(), settings=Settings(concurrency=concurrency), files={"s0": "red", "s1": "red"}
        )
        self.past = LogOfWorld(self)
        self.absorb()

    # -- the world --------------------------------------------------------------------------------

    @rule(path=st.sampled_from(("s0", "s1")), text=st.sampled_from(VALUES))
    def write(self, path: str, text: str) -> None:
        self.world.write(path, text)
        self.world.look()
        self.absorb()

    @precondition(lambda self: self.world.looks)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        self.world.answer(data.draw(st.integers(0, len(self.world.looks) - 1)))
        self.absorb()

    @precondition(lambda self: self.world.processes)
    @rule(data=st.data(), exit_code=st.sampled_from((0, 0, 1)))
    def end(self, data: st.DataObject, exit_code: int) -> None:
        process = data.draw(st.sampled_from(sorted(self.world.processes.values(), key=lambda one: one.run.run_id)))
        name = self.world.core.state.get(process.session).name
        self.world.end(name, None if process.stops else exit_code, signal=15 if process.stops else None)
        self.absorb()

    @precondition(lambda self: self.world.recoveries)
    @rule()
    def recover(self) -> None:
        self.world.recover()
        self.absorb()

    @rule(seconds=st.sampled_from((0.1, 30.0)))
    def wait(self, seconds: float) -> None:
        self.world.advance(seconds)
        self.world.answer_all()
        self.absorb()

    @rule()
    def settle(self) -> None:
        """Run everything to its end, because most calls on history need a session at rest."""
        self.world.rest(60.0)
        self.absorb()

    @rule(data=st.data(), objective=st.sampled_from(("x", "y")))
    def edit(self, data: st.DataObject, objective: str) -> None:
        """Change a spec, or declare a removed one again."""
        name = data.draw(st.sampled_from(sorted({*self.world.specs, *SPECS})))
        spec = self.world.specs.get(name) or SPECS[name]
        self.world.declare(replace(spec, objective=objective))
        self.absorb()

    @precondition(lambda self: self.world.specs)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        self.world.remove(data.draw(st.sampled_from(sorted(self.world.specs))))
        self.absorb()

    @rule(when=st.sampled_from((None, "decided", "committed")))
    def crash(self, when: str | None) -> None:
        if when is None:
            self.world.crash()
            self.absorb()
        else:
            self.world.crash_when = when

    # -- calls on what runs -----------------------------------------------------------------------

    @rule(data=st.data(), kind=st.sampled_from(SIMPLE))
    def govern(self, data: st.DataObject, kind: type) -> None:
        account = self.draw(data)
        self.call(account, kind(name=account.name))

    @rule(data=st.data())
    def begin_anew(self, data: st.DataObject) -> None:
        account = self.draw(data)
        self.call(account, calls.Activate(name=account.name, fresh=True))

    @rule(data=st.data())
    def terminate(self, data: st.DataObject) -> None:
        account = self.draw(data)
        is_running = self.live(account).run is not None
        is_open = not account.shut
        self.call(account, calls.Terminate(name=account.name))
        if is_open and not is_running and account.name in self.world.core.state.ids:
            assert self.world.session(account.name).is_terminated

    @rule(data=st.data())
    def open(self, data: st.DataObject) -> None:
        account = self.draw(data)
        self.call(
            account,
            calls.Open(name=account.name, again=True),
            is_refused=False if account.shut <= {"terminated"} else None,
        )
        self.declare_again(account)

    @rule(data=st.data(), number=st.integers(0, 99))
    def rename(self, data: st.DataObject, number: int) -> None:
        account = self.draw(data)
        old, new, crashes = account.name, f"r{number}", self.world.crashes
        self.call(account, calls.Rename(name=old, new=new))
        # The file is renamed too. After a crash in between it keeps its name, and declares another session.
        if self.live(account).name == new and old in self.world.specs and crashes == self.world.crashes:
            self.world.specs[new] = replace(self.world.specs.pop(old), name=new)
            self.world.declare(self.world.specs[new])
            self.absorb()

    # -- calls on what is known -------------------------------------------------------------------

    @rule(data=st.data(), text=st.sampled_from(WORDS), wake=st.booleans())
    def send(self, data: st.DataObject, text: str, wake: bool) -> None:
        account = self.draw(data)
        sender = data.draw(st.sampled_from((None, *self.names())))
        if sender is not None and self.by_name(sender).shut:
            sender = None
        call = calls.Send(name=account.name, text=text, wake=wake, sender=sender)
        self.call(account, call, "message_added", ("message",), is_refused=bool(account.shut))

    @rule(data=st.data(), text=st.sampled_from(WORDS))
    def note(self, data: st.DataObject, text: str) -> None:
        account = self.draw(data)
        self.call(
            account,
            calls.Note(name=account.name, text=text),
            "note_added",
            ("note", text),
            is_refused=bool(account.shut),
        )

    @rule(data=st.data(), key=st.sampled_from(KEYS), value=st.sampled_from(VALUES), for_now=st.booleans())
    def remember(self, data: st.DataObject, key: str, value: str, for_now: bool) -> None:
        account = self.draw(data)
        kind, what = ("memory_set", "memory") if for_now else ("fact_set", "fact")
        call = calls.Remember(name=account.name, key=key, value=value, for_now=for_now)
        self.call(account, call, kind, (what, key, value), is_refused=bool(account.shut))

    @rule(data=st.data(), key=st.sampled_from(KEYS), for_now=st.booleans())
    def forget(self, data: st.DataObject, key: str, for_now: bool) -> None:
        account = self.draw(data)
        kind, what = ("memory_set", "memory") if for_now else ("fact_retracted", "fact")
        is_unknown = key not in (account.now.memory if for_now else account.now.facts)
        call = calls.Forget(name=account.name, key=key, for_now=for_now)
        self.call(account, call, kind, (what, key, None), is_refused=bool(account.shut) or is_unknown)

    # -- calls on history -------------------------------------------------------------------------

    @rule(data=st.data(), mark=st.sampled_from(MARKS))
    def save(self, data: st.DataObject, mark: str) -> None:
        account = self.draw(data)
        position = data.draw(st.integers(1, account.seq))
        known = account.checkpoints.get(mark)
        call = calls.Save(name=account.name, mark=mark, position=position)
        self.call(
            account,
            call,
            "checkpoint_marked",
            ("marked", mark, position),
            is_refused=bool(account.shut) or known not in (None, position),
        )

    @rule(data=st.data(), files=st.booleans())
    def rewind(self, data: st.DataObject, files: bool) -> None:
        account = self.draw(data)
        to = data.draw(st.integers(1, account.seq))
        past = fold_at(self.past, account.id, to)
        self.compare_knowledge(past, account.at(to), at=to)
        is_busy = self.live(account).run is not None or self.is_written(account)
        call = calls.Rewind(name=account.name, to=to, past=past.recollect(), files=files)
        self.call(account, call, "session_rewound", ("whole", account.at(to)), is_refused=bool(account.shut) or is_busy)

    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        """Finish the files that a dead daemon left unwritten. This holds the session and adds no record."""
        account = self.draw(data)
        length, crashes = len(self.world.log), self.world.crashes
        is_busy = self.live(account).run is not None or self.is_written(account)
        call = calls.Finish(name=account.name, position=account.seq, words="the merge of f0")
        self.call(account, call, is_refused=bool(account.shut) or is_busy)
        assert len(self.world.log) == length or self.world.crashes > crashes

    @precondition(lambda self: self.world.core.looked.writing)
    @rule(data=st.data(), text=st.sampled_from((None, *VALUES)), is_told=st.booleans())
    def end_writing(self, data: st.DataObject, text: str | None, is_told: bool) -> None:
        """End the writing of a call's files. A change that is not reported counts as one of others."""
        session_id = data.draw(st.sampled_from(sorted(self.world.core.looked.writing)))
        if text is not None:
            self.world.write("oa", text)
        self.world.observe(FilesWritten(session=session_id, paths=("oa",) if is_told else ()))
        self.absorb()

    @rule(data=st.data(), fresh=st.booleans(), has_root=st.booleans())
    def fork(self, data: st.DataObject, fresh: bool, has_root: bool) -> None:
        account = self.draw(data)
        new = data.draw(st.sampled_from(NEW_NAMES))
        at = data.draw(st.integers(1, account.seq))
        past = fold_at(self.past, account.id, at)
        before = self.live(account)
        known = account.at(at)
        taken = Knowledge(
            known.facts, {} if fresh else known.memory, known.handoff, [] if fresh else known.conversation
        )
        call = calls.Fork(name=account.name, new=new, past=past, fresh=fresh, root=f"/{new}" if has_root else None)
        expected = Expected(lambda entry: entry.kind == "session_opened" and entry.event.name == new, ("whole", taken))
        self.call(account, call, expected=expected)
        after = self.live(account)
        assert (
            after.knowledge.facts,
            after.knowledge.memory,
            after.knowledge.handoff,
            after.knowledge.conversation,
        ) == (
            before.knowledge.facts,
            before.knowledge.memory,
            before.knowledge.handoff,
            before.knowledge.conversation,
        )

    @rule(data=st.data(), summary=st.sampled_from(("", "what the fork found")), record=st.sampled_from((None, "blob")))
    def merge(self, data: st.DataObject, summary: str, record: str | None) -> None:
        forks = [one for one in self.accounts.values() if one.parent is not None and one.parent[0] in self.accounts]
        if not forks:
            return
        fork = data.draw(st.sampled_from(sorted(forks, key=lambda one: one.name)))
        account = self.accounts[fork.parent[0]]
        base_seq = account.now.merges.get(fork.id, 1)
        call = calls.Merge(
            name=account.name, fork=fork.name, base=fold_at(self.past, fork.id, base_seq).knowledge.facts, base_seq=base_seq, fork_seq=fork.seq,
            summary=summary, record=record,
        )  # fmt: skip
        taken, questions = merge(fork.at(base_seq).facts, account.now.facts, fork.now.facts)
        numbers = range(account.conflicts_opened + 1, account.conflicts_opened + 1 + len(questions))
        conflicts = {number: (key, *sides) for number, (key, sides) in zip(numbers, questions.items(), strict=True)}
        before = self.live(fork)
        self.call(account, call, "session_merged", ("merged", taken, conflicts, summary, fork.id, fork.seq))
        if account.now.merges.get(fork.id) == fork.seq:
            account.conflicts_opened = max((account.conflicts_opened, *account.now.conflicts))
        assert self.live(fork).knowledge.facts == before.knowledge.facts

    @rule(data=st.data(), choice=st.sampled_from(("ours", "theirs", "value")), value=st.sampled_from(VALUES))
    def resolve(self, data: st.DataObject, choice: str, value: str) -> None:
        open_ones = sorted((one.name, number) for one in self.accounts.values() for number in one.now.conflicts)
        if not open_ones:
            return
        name, number = data.draw(st.sampled_from(open_ones))
        account = self.by_name(name)
        key, _, _, theirs = account.now.conflicts[number]
        chosen = {"ours": account.now.facts.get(key), "theirs": theirs, "value": value}[choice]
        call = calls.Resolve(
            name=name, number=number, choice=choice, value=value if choice == "value" else None, rationale="because"
        )
        self.call(account, call, "conflict_resolved", ("resolved", number, key, chosen), is_refused=bool(account.shut))

    @rule(data=st.data(), keep=st.integers(0, 2))
    def compress(self, data: st.DataObject, keep: int) -> None:
        account = self.draw(data)
        # Erased messages are counted but not read, so the number of kept messages would differ.
        if self.erased & set(account.now.conversation):
            return
        try:
            call = make_compress(self.past, self.live(account), keep, Shortener())
        except CallerError:
            assert len(account.now.conversation) <= keep
            return
        facts = self.live(account).knowledge.facts
        self.call(account, call, "conversation_compressed", ("compressed", keep))
        assert self.live(account).knowledge.facts == facts

    @rule(data=st.data(), agent=st.sampled_from((None, "auditor")), model=st.sampled_from((None, "small")))
    def migrate(self, data: st.DataObject, agent: str | None, model: str | None) -> None:
        account = self.draw(data)
        self.call(
            account,
            calls.Migrate(name=account.name, agent=agent, model=model),
            "session_migrated",
            ("works", agent, model),
        )

    # -- moves, archive, erase ----------------------------------------------------------------------

    @rule(data=st.data(), move=st.sampled_from(("m1", "m2")))
    def freeze(self, data: st.DataObject, move: str) -> None:
        account = self.draw(data)
        self.call(account, calls.Freeze(name=account.name, move=move, to="laptop"))

    @rule(data=st.data())
    def thaw(self, data: st.DataObject) -> None:
        account = self.draw(data, "frozen")
        hold, is_frozen = self.live(account).hold, account.shut == {"frozen"}
        self.call(account, calls.Thaw(name=account.name))
        assert not is_frozen or self.live(account).hold == hold, "why it slept is not forgotten"
        self.declare_again(account)

    @rule(data=st.data())
    def move(self, data: st.DataObject) -> None:
        """Move a frozen session to another world, where it arrives with its knowledge and goes on.

        Then return its receipt.
        """
        account = self.draw(data, "frozen")
        if account.shut != {"frozen"}:
            return
        frozen = self.live(account)
        assert isinstance(frozen.closed, Moving)
        move = frozen.closed.move
        there = World()
        for entry in self.entries(account.id):
            there.log.append(entry)
            there.oracle.take(entry)
        there.call(calls.Arrive(name=frozen.name, past=frozen, move=move, origin="desk"))
        assert there.call(calls.Arrive(name=frozen.name, past=frozen, move=move, origin="desk")) == "it arrived already"
        there.call(calls.Remember(name=frozen.name, key="k0", value="there"))
        arrived = there.session(frozen.name)
        assert {key: fact.value for key, fact in arrived.knowledge.facts.items()} == {
            **account.now.facts,
            "k0": "there",
        }
        there.crash()
        there.oracle.judge_replay()
        self.call(account, calls.Depart(name=account.name, move=move, receipt="r"), is_refused=False)

    @rule(data=st.data())
    def depart(self, data: st.DataObject) -> None:
        account = self.draw(data)
        self.call(account, calls.Depart(name=account.name, move="m1", receipt="r"))

    @rule(data=st.data())
    def archive(self, data: st.DataObject) -> None:
        account = self.draw(data)
        call = calls.Archive(name=account.name, at=account.seq, bundle="b", digest="d")
        self.call(account, call, "session_archived", ("archived", account.now))

    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        account = self.draw(data, "archived")
        self.call(account, calls.Restore(name=account.name), is_refused=False)
        self.declare_again(account)

    @rule(data=st.data())
    def erase(self, data: st.DataObject) -> None:
        account = self.draw(data)
        seq = data.draw(st.integers(1, account.seq))
        entry = self.entries(account.id)[seq - 1]
        if (account.id, seq) in self.erased:
            return
        try:
            stand_in = redact(entry.kind, msgspec.json.decode(entry.payload))
        except CallerError:
            return
        key = self.call(
            account, calls.Erase(name=account.name, seq=seq, kind=entry.kind, stand_in=stand_in), "payload_erased"
        )
        if any(one.key == key for one in self.entries(account.id)):
            self.world.erase(account.id, seq, stand_in)
            self.erased.add((account.id, seq))
            account.erase(seq)
            self.refold(account.id)
            self.absorb()

    # -- again ----------------------------------------------------------------------------------------

    @precondition(lambda self: self.repeatable)
    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        """A call whose key is in the log changes nothing, however late it comes."""
        call, key, session_id = data.draw(st.sampled_from(self.repeatable[-8:]))
        names = (call.name, call.new) if isinstance(call, calls.Rename) else (call.name,)
        # A key belongs to a session. An older name may mean another session now, or none.
        if session_id not in {self.world.core.state.ids.get(name) for name in names}:
            return
        length, crashes = len(self.world.log), self.world.crashes
        self.world.call(call, key=key)
        assert len(self.world.log) == length and self.world.crashes == crashes

    # -- what all of these share ------------------------------------------------------------------

    def names(self) -> list[str]:
        return sorted(self.world.core.state.ids)

    def by_name(self, name: str) -> Account:
        return self.accounts[self.world.core.state.ids[name]]

    def draw(self, data: st.DataObject, shut: str | None = None) -> Account:
        """Draw a session. Prefer sessions that are shut for this reason; without a reason prefer open ones."""
        names = self.names()
        fit = [
            name
            for name in names
            if (shut in self.by_name(name).shut if shut is not None else not self.by_name(name).shut)
        ]
        return self.by_name(data.draw(st.sampled_from(fit * 4 + names)))

    def live(self, account: Account) -> Session:
        return self.world.core.state.get(account.id)

    def entries(self, session_id: str) -> list[Recorded]:
        return self.by_session[session_id]

    def call(
        self,
        account: Account,
        call: calls.Call,
        kind: str | None = None,
        change: Change = NOTHING,
        *,
        expected: Expected | None = None,
        is_refused: bool | None = None,
    ) -> str:
        """Make a call with a key. If a crash loses it, make it again. Return the key."""
        self.calls_made += 1
        key = f"call-{self.calls_made}"
        if expected is None and kind is not None:
            expected = Expected(lambda entry: entry.kind == kind and entry.key == key, change)
        length, crashes = len(self.world.log), self.world.crashes
        try:
            self.world.call(call, key=key)
            if self.world.crashes > crashes:
                # The caller got no reply. The same key again carries the call out once, whether or not the first
                # attempt was recorded.
                self.absorb(expected)
                expected = None if self.world.crashes > crashes and self.is_recorded(key) else expected
                length = len(self.world.log)
                self.world.call(call, key=key)
        except CallerError as refusal:
            assert len(self.world.log) == length, f"refused, and recorded all the same: {refusal}"
            assert is_refused is not False or self.world.crashes > crashes, refusal
        else:
            assert is_refused is not True or self.world.crashes > crashes, f"{call} should be refused"
        self.absorb(expected)
        made = [entry for entry in self.world.log if entry.key == key]
        assert len(made) <= 1, f"{call} was carried out twice"
        if made:
            is_own = made[0].session == account.id
            # A closed log takes no record of its fork.
            assert is_own or (isinstance(call, calls.Fork) and account.shut), (
                "a key stands in the log of the session that was named"
            )
            self.repeatable.append((call, key, account.id))
        return key

    def is_written(self, account: Account) -> bool:
        """Say whether files are being written in the session's name."""
        writing = self.world.core.looked.writing.get(account.id)
        return writing is not None and writing.awaited is None

    def is_recorded(self, key: str) -> bool:
        return any(entry.key == key for entry in self.world.log)

    def declare_again(self, account: Account) -> None:
        """Read the file of the session again."""
        spec = self.world.specs.get(account.name)
        if spec is not None:
            self.world.declare(spec)
        else:
            self.world.observe(SpecsRead(removed=(account.name,)))
        self.absorb()

    def absorb(self, expected: Expected | None = None) -> None:
        """Take the new records into the model, then compare the two."""
        while self.read_until < len(self.world.log):
            entry = self.world.log[self.read_until]
            self.read_until += 1
            is_it = expected is not None and expected.is_it(entry)
            self.take(entry, expected.change if is_it and expected is not None else None)
            expected = None if is_it else expected
        self.compare()

    def take(self, entry: Recorded, change: Change | None) -> None:
        event = entry.event
        account = self.accounts.get(entry.session)
        if account is None:
            assert isinstance(event, ev.SessionOpened)
            origin = (event.origin.session, event.origin.seq) if event.origin is not None else None
            account = self.accounts[entry.session] = Account(entry.session, event.name, parent=origin)
        # The last closure opens first: a departed or terminated session may be in an archive.
        why = next((why for why in OPENED_BY if why in account.shut), None)
        assert why is None or entry.kind in OPENED_BY[why], f"{account.name} is {why}, and takes {entry.kind}"
        assert change is not None or entry.kind not in KNOWN_BY_CALL, f"nobody asked for {entry.kind}"
        match event:
            case ev.RunStarted(is_fresh=is_fresh):
                change = ("started", is_fresh)
            case ev.RunFinished(is_final=True):
                change = ("ended",)
            case ev.SessionRenamed(new=new):
                account.name = new
            case ev.MessageAdded(position=position):
                account.mailbox += 1
                assert position == account.mailbox, "messages have one order without gaps"
            case ev.SessionMigrated(agent=agent, model=model):
                account.works = (agent, model)
            case _:
                self.shut_or_open(account, entry.kind)
        if change is not None and change[0] == "marked":
            account.checkpoints[change[1]] = change[2]
        account.add(change or NOTHING)
        self.by_session.setdefault(entry.session, []).append(entry)
        before = self.folded.get(entry.session)
        self.folded[entry.session] = fold(before, event, seq=entry.seq, at=entry.at, author=entry.author)

    def shut_or_open(self, account: Account, kind: str) -> None:
        shuts = {
            "session_terminated": "terminated",
            "session_frozen": "frozen",
            "session_departed": "departed",
            "session_archived": "archived",
        }
        opens = {"session_reopened": "terminated", "session_thawed": "frozen", "session_restored": "archived"}
        if kind in shuts:
            account.shut.add(shuts[kind])
            account.shut -= {"frozen"} if kind == "session_departed" else set()
        account.shut.discard(opens.get(kind, ""))

    def refold(self, session_id: str) -> None:
        """Fold the session again after an erasure. Later folds begin with the stand-in."""
        self.by_session[session_id] = [
            entry for entry in self.world.log[: self.read_until] if entry.session == session_id
        ]
        self.folded[session_id] = self.world.fold_log(self.read_until)[session_id]

    def compare(self) -> None:
        assert self.folded == self.world.core.state.sessions, "replay equals live"
        for account in self.accounts.values():
            live = self.live(account)
            assert (live.name, live.seq, live.mailbox.position) == (account.name, account.seq, account.mailbox)
            assert {mark: one.seq for mark, one in live.lineage.checkpoints.items()} == account.checkpoints
            assert (live.declaration.agent, live.declaration.model) == account.works
            assert live.is_shut == bool(account.shut)
            assert live.run is None or account.id not in self.world.core.looked.writing, (
                "nothing starts on half of its files"
            )
            self.compare_knowledge(live, account.now, at=account.seq)
        self.world.oracle.judge_plan()

    def compare_knowledge(self, found: Session, known: Knowledge, at: int) -> None:
        where = f"{found.name} at {at}"
        assert {key: fact.value for key, fact in found.knowledge.facts.items()} == known.facts, where
        assert found.knowledge.memory == known.memory, where
        assert found.knowledge.handoff == known.handoff, where
        assert {
            one.number: (one.key, one.base, one.ours, one.theirs) for one in found.lineage.conflicts
        } == known.conflicts, where
        assert found.lineage.merges == known.merges, where
        assert found.knowledge.conversation.messages == len(known.conversation), where
        if found.seq == at and not self.erased & set(known.conversation):
            said = [(one.session, one.seq) for one in read_conversation(self.past, found)]
            assert [one for one in said if one[0] != found.id or one[1] <= at] == known.conversation, where

    def teardown(self) -> None:
        """Check that owed runs still happen, and that a restart finds the same state, also through any snapshot."""
        if not hasattr(self, "world"):
            return
        self.world.crash_when = None
        for cut in range(0, len(self.world.log), 7):
            assert self.world.fold_log(snapshot_at=cut) == self.world.core.state.sessions, (
                f"a snapshot at {cut} changes the fold"
            )
        for account in self.accounts.values():
            for seq in range(1, account.seq + 1, 5):
                self.compare_knowledge(fold_at(self.past, account.id, seq), account.at(seq), at=seq)
        for session_id in sorted(self.world.core.looked.writing):
            self.world.observe(FilesWritten(session=session_id, paths=()))
        self.world.rest(400.0)
        assert not self.world.core.looked.writing, "who is held is let go"
        self.absorb()
        self.world.crash()
        self.absorb()


def make_settings(examples: int, steps: int, **more: Any) -> settings:
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    return settings(
        max_examples=examples, stateful_step_count=steps, deadline=None, suppress_health_check=checks, **more
    )


def test_a_seeded_slice_of_histories_keeps_every_promise() -> None:
    """The histories are the same every time, so a failure can be repeated."""
    run_state_machine_as_test(CallsMachine, settings=make_settings(100, 40, derandomize=True))


@pytest.mark.long
def test_two_thousand_histories_of_fifty_steps_keep_every_promise() -> None:
    """The histories differ from night to night."""
    run_state_machine_as_test(CallsMachine, settings=make_settings(2000, 50, derandomize=False, print_blob=True))
