"""Each kind of record has a line of words, which `log` and `history` print."""

import re

import pytest

from wakeful.core.agents.turns import Answered, SubWork, TokenUsage, ToolCall
from wakeful.core.record import events as ev
from wakeful.core.record.knowledge import Origin, Recollection
from wakeful.core.record.observations import Denied, KeptOutput, StagedOutput, Traced
from wakeful.core.record.todo import TodoItem
from wakeful.core.spec.session import SessionSpec
from wakeful.eventlog.codec import KINDS
from wakeful.views.narration import narrate, tell

STAGED = StagedOutput(path="out/a.csv", base=None, new="1", place="0/a.csv")
KEPT = KeptOutput(path="out/a.csv", words="others changed it", kept="/state/a.csv")
DENIED = Denied(access="read", what="/etc/shadow", words="it may hold secrets")
CAUSES = (ev.Cause(binding="a", kind="file", key="k"),)
TOOL = ToolCall(id="c1", name="read", arguments='{"path": "a"}')
EVERY: list[tuple[ev.Event, str]] = [
    (ev.SessionOpened(id="b313d62c07f6", name="words"), "opened as words, with the id b313d62c07f6"),
    (ev.SessionRenamed(old="words", new="counts"), "renamed from words to counts"),
    (ev.SpecDeclared(spec=SessionSpec(name="words", root="/p"), version="1", text_digest="2"), "declared"),
    (ev.SpecRemoved(), "gone"),
    (
        ev.SpecTrusted(digest="1", files=("sessions.d/words.yaml", "words.py")),
        "trusted as it is now: sessions.d/words.yaml, words.py",
    ),
    (ev.SessionAdopted(versions={"a": "1"}), "takes the present versions as seen, without a run: 1 version"),
    (ev.ActivationRequested(position=1), "activation requested"),
    (ev.ActivationRequested(position=1, note="month end", fresh=True), "activation requested, fresh: month end"),
    (ev.MessageAdded(position=1, sender="person:x", text="hi"), "message from person:x: hi"),
    (ev.MessageSent(receiver="other", position=2, text="hi"), "message 2 sent to other: hi"),
    (
        ev.DeliveryReceived(
            binding="hub", key="webhook hub", position=3, sender="github", delivery="d-1", event="push", payload="b"
        ),
        "delivery 3 from github (push d-1) to hub",
    ),
    (
        ev.DeliveryReceived(
            binding="hub", key="webhook hub", position=3, sender="github", delivery="d-2", is_filtered=True, reason="no"
        ),
        "delivery from github (d-2) filtered: no",
    ),
    (ev.NoteAdded(text="done"), "done"),
    (ev.FactSet(key="language", value="english"), "language = english"),
    (ev.FactRetracted(key="language", rationale="wrong"), "forgets language: wrong"),
    (ev.WakeRequested(wake=1, causes=CAUSES), "wakes: a"),
    (ev.WakeExtended(wake=1, causes=CAUSES), "wakes: a"),
    (ev.WakeWithdrawn(wake=1, reason="changed back"), "changed back"),
    (ev.RunStarted(run=1, run_id="r", wake=1, attempt=0, incarnation="i", versions={}, causes=CAUSES), "run 1 started"),
    (ev.RunStopRequested(run=1, why="cancel"), "run 1"),
    (ev.RunReadopted(run=1, incarnation="j"), "run 1 goes on: it outlived the daemon that started it"),
    (ev.OutputsStaged(run=1, outputs=(STAGED,)), "run 1 has succeeded; 1 output to be put in place"),
    (ev.OutputsLanded(run=1), "the outputs of run 1 are in place"),
    (
        ev.OutputsLanded(run=1, kept=(KEPT,)),
        "run 1: out/a.csv not put in place: others changed it; kept in /state/a.csv",
    ),
    (ev.RunFinished(run=1, outcome="succeeded", is_final=True), "run 1 succeeded"),
    (ev.RunFinished(run=1, outcome="failed", is_final=True, trace=Traced(denied=(DENIED,))), "1 thing denied"),
    (
        ev.RunFinished(
            run=1,
            outcome="succeeded",
            is_final=True,
            trace=Traced(denied=(DENIED,), more=2, is_observed=True, words="\x1b[2J"),
        ),
        "3 things outside its reach; \\x1b[2J",
    ),
    (
        ev.RunStarted(
            run=1, run_id="r", wake=1, attempt=0, incarnation="i", versions={}, causes=CAUSES, trace="observed"
        ),
        "run 1 started, traced, with nothing denied",
    ),
    (
        ev.PromptAssembled(
            run=2, agent="docs", model="anthropic:m", instructions="blake2b-1", tokens={"rules": 2, "objective": 3}
        ),
        "run 2: agent docs with anthropic:m gets about 5 tokens",
    ),
    (
        ev.TurnRequested(run=2, turn=1, model="anthropic:m", input_tokens=5, max_output_tokens=9),
        "run 2 asks anthropic:m, turn 1, about 5 tokens",
    ),
    (
        ev.TurnAnswered(
            run=2, turn=1, answer=Answered(model="anthropic:m", text="\x1b[2J"), usage=TokenUsage(output=1)
        ),
        "run 2 says: \\x1b[2J",
    ),
    (
        ev.TurnAnswered(run=2, turn=1, answer=Answered(model="anthropic:m", calls=(TOOL,)), usage=TokenUsage(output=4)),
        "run 2, turn 1: anthropic:m answered with 4 tokens, and calls read",
    ),
    (
        ev.TurnMetered(run=2, turn=1, requests=3, usage=TokenUsage(input=900, output=100, is_estimated=True), usd=0.5),
        "run 2 has spent about 1,000 tokens, 0.5000 USD until now, in 3 requests",
    ),
    (
        ev.TurnFailed(run=2, turn=1, model="anthropic:m", fault="busy", words="429"),
        "run 2: no answer from its model: 429",
    ),
    (ev.ToolCalled(run=2, call=TOOL), "run 2 calls read path: a"),
    (ev.ToolReturned(run=2, call="c1", name="read", text="a file", is_error=True), "run 2: read failed: a file"),
    (ev.QuestionAsked(run=2, call="c1", name="ask_person", text="which rate?"), "run 2 asks: which rate?"),
    (
        ev.SubagentHalted(run=2, sub=SubWork(call="c1", agent="reviewer"), words="no model"),
        "run 2, sub-agent reviewer cannot go on: no model",
    ),
    (
        ev.ToolCalled(run=2, call=TOOL, sub=SubWork(call="c1", agent="reviewer")),
        "run 2, sub-agent reviewer calls read path: a",
    ),
    (
        ev.WorkHalted(run=2, hold=ev.Hold(kind="asking", words="asks: which rate?")),
        "run 2 cannot go on: asks: which rate?",
    ),
    (ev.SlotSkipped(binding="daily", key="k", slot="2026-01-01T06:00:00Z", count=1, reason="asleep"), "asleep"),
    (ev.ClockRebased(binding="daily", key="k", old="1", new="2"), "daily counts from 2 on, no longer from 1"),
    (ev.SessionSuspended(reason="rests"), "suspended"),
    (ev.SessionSlept(hold=ev.Hold(kind="snoozed", words="lunch")), "lunch"),
    (ev.SessionResumed(reason="by a person"), "by a person"),
    (ev.SessionBraked(words="the printer burns"), "sleeps: the printer burns"),
    (ev.SessionReleased(), "may go on: the brake is released"),
    (ev.QuestionAnswered(wake=1, text="yes"), "answered: yes"),
    (ev.QuestionAnswered(wake=1, text="no", call="c1", is_unanswered=True), "denied: no answer came in time"),
    (ev.SessionTerminated(), "terminated"),
    (ev.SessionReopened(reason="again"), "opened again: again"),
    (
        ev.SessionOpened(
            id="x", name="april", origin=Origin(session="y", name="march", seq=7), recollection=Recollection(line=())
        ),
        "opened as april, a fork of march at its record 7",
    ),
    (ev.MemorySet(key="row", value="17"), "keeps row = 17 for this conversation"),
    (ev.MemorySet(key="row", value=None), "forgets row of this conversation"),
    (
        ev.TodoSet(items=(TodoItem(text="a", status="done"), TodoItem(text="b", status="doing"))),
        "to-do list: 1 of 2 done; doing: b",
    ),
    (ev.CheckpointMarked(mark="audit", position=7, note="before it"), "checkpoint audit is record 7: before it"),
    (ev.SessionRewound(to=7, recollection=Recollection(line=())), "goes on from record 7"),
    (ev.OutputsAdopted(by="the merge of april", position=7, versions={}), "has the files of the merge of april"),
    (ev.SessionForked(fork="x", name="april", position=7), "forked at record 7 as april"),
    (ev.SessionMerged(fork="x", name="april", fork_seq=9, retracted=("a",)), "took 1 fact of april"),
    (
        ev.ConflictResolved(number=1, key="rate", value="9", rationale="the law"),
        "conflict 1 resolved, rate = 9: the law",
    ),
    (ev.ConflictResolved(number=1, key="rate", value=None, rationale="the law"), "rate is forgotten"),
    (
        ev.ConversationCompressed(
            replaced=(), kept=(), summary="s", messages=30, kept_messages=20, kept_bytes=9, by="rule"
        ),
        "30 messages replaced by a summary (by rule)",
    ),
    (
        ev.SessionMigrated(agent="auditor", model="local:small"),
        "agent auditor and model local:small from the next run on",
    ),
    (ev.SessionFrozen(move="m", to="laptop"), "frozen: it moves to laptop"),
    (ev.SessionThawed(move="m"), "given up"),
    (ev.SessionDeparted(move="m", receipt="r"), "lives on another host"),
    (ev.SessionArrived(move="m", origin="desk"), "came from desk"),
    (ev.SessionArchived(bundle="b.wakeful", digest="d", state={}), "archived in b.wakeful"),
    (ev.SessionRestored(bundle="b"), "back from its archive"),
    (
        ev.PayloadErased(erased=7, kind="note_added", stand_in={}, reason="a key"),
        "the payload of record 7 (note_added) was erased: a key",
    ),
    (ev.NotificationDelivered(notifier="ops", event="failed", about=7, delivery="d"), "ops"),
    (
        ev.NotificationAbandoned(notifier="ops", event="asks", about=7, delivery="d", attempts=9, words="no route"),
        "no route",
    ),
]


@pytest.mark.parametrize(("event", "words"), EVERY, ids=lambda value: type(value).__name__)
def test_every_record_is_told_in_words(event: ev.Event, words: str) -> None:
    """The words come from `narrate` if it has any, else from `tell`."""
    told = narrate(event) or tell(event)
    assert words in told and not re.search(r"[{}]", told)


def test_no_kind_is_left_out() -> None:
    """The table above has every kind. A kind without words of its own is shown by its name."""
    assert {type(event) for event, _ in EVERY} == set(KINDS)
    assert tell(ev.SpecRemoved()) == "spec removed"
