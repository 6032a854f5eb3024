"""A small log with every kind of event, and each field set at least once: the log that `make golden` records.

Sessions are in the order in which they are recorded. An entry is an event, or an event with its author. Add an example
for a new kind of event here, at a place where its fold makes sense. `make golden` then writes the log of this release
again. Logs of earlier releases are never changed.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from wakeful.core.agents.turns import Answered, SubSpent, SubWork, TokenUsage, ToolCall
from wakeful.core.record import events as ev
from wakeful.core.record.flat_state import flatten
from wakeful.core.record.knowledge import Conflict, Conversation, Fact, Origin, Recollection, RecordRange
from wakeful.core.record.observations import Denied, Enforced, KeptOutput, Output, StagedOutput, Traced, Usage
from wakeful.core.record.state import Knowledge, Session
from wakeful.core.record.todo import TodoItem
from wakeful.core.spec.agent import AgentSpec, McpServer, ModelSettings, ModelSpec
from wakeful.core.spec.bindings import (
    CommitsBinding,
    CronBinding,
    EveryBinding,
    FileBinding,
    MessageBinding,
    ProbeBinding,
    ServiceBinding,
    SessionBinding,
    WebhookBinding,
)
from wakeful.core.spec.budget import Amounts, Budget
from wakeful.core.spec.session import CommandRun, Retention, ScriptRun, SessionSpec, Window

Example: TypeAlias = "ev.Event | tuple[ev.Event, str]"

PAYROLL, DRAFT, MOVED, SHELVED = "01payroll", "02draft", "03moved", "04shelved"
BLOB = "blake2b-" + "0f" * 32

SPEC = SessionSpec(
    name="payroll", root="/project", agent="hr", objective="Pay everyone what they are owed.", priority=70, tags=("hr", "monthly"),
    bindings=(
        FileBinding(name="rates", pattern="inputs/*.csv", exclude=("*.bak",), compare="stat", missing="wait", settle_seconds=0.2),
        FileBinding(name="report", pattern="out/report.md", access="write", wake=False),
        CommitsBinding(name="code", path="src", repo=".", branch="main", each_commit=True, export=True, stale_allowed=True),
        CronBinding(name="monthly", expression="0 6 1 * *", timezone="Europe/Berlin", catch_up="all", jitter_seconds=5.0),
        EveryBinding(name="pulse", period_seconds=3600.0, overlap="skip", catch_up="none"),
        MessageBinding(name="mail"),
        SessionBinding(name="staff", session="staff", on="finished"),
        ProbeBinding(name="exchange", argv=("curl", "-s", "x"), check_every_seconds=60.0, timeout_seconds=3.0),
        WebhookBinding(name="hub", sender="github", secrets=("gh",), only={"event": ("push",)}, tolerance_seconds=60.0, max_size_bytes=9, is_untrusted=True),
        ServiceBinding(name="bank", url="tcp://bank:443", check_every_seconds=9.0, timeout_seconds=2.0),
    ),
    when="changed", pace_seconds=60.0, window=Window(360, 1200, "Europe/Berlin"), first="run",
    run=CommandRun(argv=("python", "pay.py"), cwd=".", env={"LANG": "C"}, timeout_seconds=60.0, grace_seconds=5.0, retries=1, check=("test", "-s", "out/report.md")),
    conversation="continue", pool="hr", program="pay.py", people={"ada": "maintainer", "1000": "observer"},
    retention=Retention(keep_seconds=7776000.0, runs=500, size_bytes=1_000_000_000), is_approved_first=True,
    budget=Budget(
        run=Amounts(wall_seconds=600.0, usd=0.5), hour=Amounts(runs=6), day=Amounts(cpu_seconds=60.0, tokens=9, written_bytes=7), month=Amounts(usd=9.0),
        timezone="Europe/Berlin",
    ),
)  # fmt: skip
RATES, REPORT, CRON = SPEC.bindings[0].identity, SPEC.bindings[1].identity, SPEC.bindings[3].identity
SECOND_SPEC = msgspec.structs.replace(SPEC, enabled=False, run=ScriptRun(text="pay\nfile\n", timeout_seconds=30.0))

CAUSE = ev.Cause(
    binding="rates", kind="file", key=RATES, old="v1", new="v2", reason="changed", paths=(ev.ChangedPath("inputs/rates.csv", "modified"),),
    delta="known", commits=("c0ffee",), at=1_700_000_000_000_000,
)  # fmt: skip
ACTIVATION = ev.Cause(binding="activation", kind="activation", key="activation", new="1", reason="ada")


AGENT = AgentSpec(
    name="hr", prompt="You keep the books.", models=(ModelSpec(provider="anthropic", model="m", key="ANTHROPIC_API_KEY"),),
    settings=ModelSettings(temperature=0.2, effort="low"), tools={"shell": "ask"}, mcp=(McpServer(name="tickets", argv=("tickets-mcp",)),),
    budget=Budget(day=Amounts(usd=2.0)), subagents=("auditor",),
    team=(AgentSpec(name="auditor", models=(ModelSpec(provider="openai", model="o"),), budget=Budget(day=Amounts(usd=1.0))),),
)  # fmt: skip
SUB = SubWork(call="c3", agent="auditor")
CALL = ToolCall(id="c1", name="read", arguments='{"path": "inputs/rates.csv"}')


def start(run: int, wake: int, **fields: object) -> ev.RunStarted:
    return ev.RunStarted(
        run=run, run_id=f"{PAYROLL}-{run}", wake=wake, incarnation="daemon-1", versions={RATES: f"v{run}", CRON: "2026-01-01T06:00"},
        causes=(CAUSE,), **{"attempt": 0, **fields},
    )  # type: ignore[arg-type]  # fmt: skip


TODO = (
    TodoItem(text="read the rates", status="done"),
    TodoItem(text="write the report", status="doing"),
    TodoItem(text="tell ada"),
)
FACT = Fact(key="rate", value="0.19", author="ada", seq=9, rationale="the law", confidence=0.9, source=5)
RECOLLECTION = Recollection(
    line=(RecordRange(PAYROLL, 1, 12),), facts={"rate": FACT}, memory={"step": "two"}, handoff="half done",
    conversation=Conversation(stretches=(RecordRange(PAYROLL, 1, 12),), summary="earlier", messages=2, size_bytes=40), good={RATES: "v1"},
    conflicts=(Conflict(number=1, key="rate", base="0.1", ours="0.19", theirs="0.2", fork=DRAFT, theirs_rationale="a guess"),),
    merges={DRAFT: 3}, todo=TODO[:1],
)  # fmt: skip

PAYROLL_EVENTS: tuple[Example, ...] = (
    ev.SessionOpened(id=PAYROLL, name="payroll-old"),
    (ev.SessionRenamed(old="payroll-old", new="payroll"), "ada"),
    ev.SpecDeclared(spec=SPEC, version="spec1", text_digest="text1", positions={CRON: "2026-01-01T06:00"}),
    ev.SessionAdopted(versions={RATES: "v0", REPORT: "r0"}),
    (ev.MessageAdded(position=1, sender="staff", text="two people joined", wake=True, chain=("staff",)), "staff"),
    ev.MessageAdded(position=2, sender="ada", text="no hurry", wake=False),
    ev.MessageSent(receiver="filing", position=1, text="wait for the report"),
    (ev.NoteAdded(text="half done"), "payroll"),
    (ev.FactSet(key="rate", value="0.19", rationale="the law", confidence=0.9, source=5), "ada"),
    ev.FactSet(key="office", value="Bonn"),
    ev.FactRetracted(key="office", rationale="moved away"),
    ev.MemorySet(key="step", value="two"),
    ev.MemorySet(key="step", value=None),
    ev.TodoSet(items=TODO),
    ev.WakeRequested(wake=1, causes=(CAUSE,), chain=("staff",)),
    (ev.ActivationRequested(position=1, note="now, please", fresh=True, trace="declared"), "ada"),
    ev.WakeExtended(wake=1, causes=(CAUSE, ACTIVATION), chain=("staff",)),
    start(1, 1, chain=("staff",), mixed=True, resumed_from=None, is_backlog=True, trace="declared"),
    ev.RunFinished(
        run=1, outcome="failed", is_final=False, reason="exit 3", exit_code=3, retry_at=1_700_000_100_000_000, backoff_seconds=30.0,
        trace=Traced(denied=(Denied(access="read", what="/project/lib/a.py", place="/project/lib/a.py"), Denied(access="connect", what="the network", place="*")), more=1),
    ),
    start(2, 1, attempt=1, resumed_from=1),
    (ev.RunStopRequested(run=2, why="interrupt"), "ada"),
    ev.RunFinished(run=2, outcome="interrupted", is_final=True, by="ada", signal=2, touched=(RATES,), reason="interrupted by ada"),
    ev.WakeRequested(wake=2, causes=(CAUSE,)),
    start(3, 2, agent=AGENT),
    ev.PromptAssembled(run=3, agent="hr", model="anthropic:m", instructions=BLOB, opening=BLOB, tokens={"rules": 10, "objective": 7}),
    ev.TurnRequested(run=3, turn=1, model="anthropic:m", input_tokens=17, max_output_tokens=100, usd=0.01),
    ev.TurnMetered(run=3, turn=1, requests=2, usage=TokenUsage(input=150, output=12, is_estimated=True), usd=0.02),
    ev.TurnFailed(run=3, turn=1, model="anthropic:m", fault="busy", words="429: too many requests"),
    ev.TurnRequested(run=3, turn=2, model="anthropic:m", input_tokens=17, max_output_tokens=100, usd=0.01),
    ev.TurnAnswered(
        run=3, turn=2, answer=Answered(model="anthropic:m", text="let me see", calls=(CALL,), stop="calls", raw="{}"),
        usage=TokenUsage(input=20, output=9, cached=4), usd=0.002,
    ),
    ev.ToolCalled(run=3, call=CALL),
    ev.ToolReturned(run=3, call="c1", name="read", text="0.19"),
    ev.QuestionAsked(run=3, call="c2", name="shell", text="may it run make?", is_permission=True),
    ev.WorkHalted(run=3, hold=ev.Hold(kind="asking", words="asks: may it run make?")),
    ev.PromptAssembled(run=3, agent="auditor", model="openai:o", instructions=BLOB, opening=BLOB, tokens={"facts": 3}, sub=SUB),
    ev.TurnRequested(run=3, turn=1, model="openai:o", input_tokens=10, max_output_tokens=50, usd=0.01, sub=SUB),
    ev.TurnAnswered(run=3, turn=1, answer=Answered(model="openai:o", calls=(CALL,), stop="calls"), usage=TokenUsage(input=8, output=2), usd=0.001, sub=SUB),
    ev.ToolCalled(run=3, call=CALL, sub=SUB),
    ev.ToolReturned(run=3, call="c1", name="read", text="0.19", sub=SUB),
    ev.TurnFailed(run=3, turn=2, model="openai:o", fault="busy", words="429: too many requests", sub=SUB),
    ev.SubagentHalted(run=3, sub=SUB, words="429: too many requests"),
    ev.RunReadopted(run=3, incarnation="b2"),
    ev.OutputsStaged(
        run=3, outputs=(StagedOutput(path="out/report.md", base=None, new="d1", place="0/report.md"),), exit_code=0, undeclared=("out/x",),
        usage=Usage(cpu_seconds=0.5), output=Output(head=BLOB, total_bytes=9, kept_bytes=9), isolation=Enforced("strict", ("hosts",)),
    ),
    ev.OutputsLanded(run=3, kept=(KeptOutput(path="out/report.md", words="others changed it", kept="/state/conflicts/3/out/report.md"),)),
    ev.RunFinished(
        run=3, outcome="succeeded", is_final=True, exit_code=0, written={"out/report.md": "r1"}, assumed=False, files=BLOB, conflicts=(REPORT,),
        usage=Usage(cpu_seconds=0.5, max_rss_bytes=10_000_000, read_bytes=4_096, written_bytes=512, wall_seconds=0.7),
        output=Output(head=BLOB, tail=BLOB, total_bytes=2_000_000, kept_bytes=200_000), subagents={"auditor": SubSpent(tokens=10, usd=0.001)},
    ),
    ev.SessionSuspended(reason="nothing is owed"),
    ev.SlotSkipped(binding="monthly", key=CRON, slot="2026-02-01T06:00", count=1, reason="overlap"),
    ev.ClockRebased(binding="monthly", key=CRON, old="2026-02-01T06:00", new="2026-01-01T06:00"),
    ev.SessionSlept(hold=ev.Hold(kind="snoozed", words="until Monday", until=1_700_100_000_000_000, length_seconds=86_400.0)),
    (ev.SessionResumed(reason="ada said so", is_forgiven=True), "ada"),
    (ev.SessionBraked(words="everything was put to sleep by ada"), "ada"),
    (ev.SessionReleased(), "ada"),
    (ev.QuestionAnswered(wake=1, text="yes", call="c2"), "ada"),
    ev.WakeRequested(wake=3, causes=(CAUSE,)),
    (ev.WakeWithdrawn(wake=3, reason="cancelled", versions={RATES: "v3"}, is_cancelled=True), "ada"),
    ev.CheckpointMarked(mark="before-march", position=24, note="sound"),
    ev.SessionForked(fork=DRAFT, name="draft", position=24),
    ev.SessionMerged(
        fork=DRAFT, name="draft", fork_seq=3, taken=(msgspec.structs.replace(FACT, key="bonus", value="100"),), retracted=("office",),
        conflicts=RECOLLECTION.conflicts, summary="the draft raised the rate", files={"out/report.md": "merged"}, todo=TODO,
    ),
    (ev.ConflictResolved(number=1, key="rate", value="0.2", rationale="the draft is right"), "ada"),
    ev.ConversationCompressed(
        replaced=(RecordRange(PAYROLL, 1, 20),), kept=(RecordRange(PAYROLL, 21),), summary="two people joined", messages=3, kept_messages=1,
        kept_bytes=25, by="digest",
    ),
    (ev.SessionMigrated(agent="hr-2", model="model-2", old_agent="hr", old_model=None), "ada"),
    ev.SessionRewound(to=12, recollection=RECOLLECTION, versions={RATES: "v4"}),
    (ev.OutputsAdopted(by="the rewind to seq 12", position=38, versions={REPORT: "r1"}), "ada"),
    ev.SpecDeclared(spec=SECOND_SPEC, version="spec2", text_digest="text2"),
    (ev.SpecTrusted(digest="cd" * 16, files=("sessions.d/payroll.yaml",)), "ada"),
    ev.SpecRemoved(),
    # Record 8 was erased: a replay folds this stand-in instead.
    (ev.PayloadErased(erased=8, kind="note_added", stand_in={"text": "[erased]"}, reason="a password"), "ada"),
    ev.NotificationDelivered(notifier="ops", event="failed", about=9, delivery="msg_1", attempts=2),
    ev.NotificationAbandoned(notifier="mail", event="asks", about=9, delivery="msg_2", attempts=10, words="no such host"),
    (ev.SessionTerminated(reason="the year is over"), "ada"),
    (ev.SessionReopened(reason="not quite"), "ada"),
    (ev.DeliveryReceived(binding="hub", key="webhook hub", position=1, sender="github", delivery="d1", event="push", size_bytes=7, payload=BLOB, suffix=".txt"), "webhook:github"),
    ev.DeliveryReceived(binding="hub", key="webhook hub", position=1, sender="github", delivery="d2", is_filtered=True, reason="event is ping, and only push counts"),
)  # fmt: skip
ERASED = {(PAYROLL, 8)}

DRAFT_EVENTS: tuple[Example, ...] = (
    ev.SessionOpened(
        id=DRAFT, name="draft", origin=Origin(session=PAYROLL, name="payroll", seq=24, hash="ab" * 32), recollection=RECOLLECTION,
        seen={RATES: "v1"}, is_first_taken=True, detached=("report",),
    ),
    ev.SpecDeclared(spec=SPEC, version="spec1", text_digest="text1", is_filed=False),
    (ev.FactSet(key="rate", value="0.2"), "ada"),
)  # fmt: skip

MOVED_EVENTS: tuple[Example, ...] = (
    ev.SessionOpened(id=MOVED, name="moved"),
    ev.SessionFrozen(move="move-1", to="ssh://other"),
    ev.SessionThawed(move="move-1", reason="the other host is down"),
    ev.SessionFrozen(move="move-2", to="ssh://other"),
    ev.SessionDeparted(move="move-2", receipt="r2"),
    ev.SessionArrived(move="move-2", origin="ssh://this"),
)

SHELVED_EVENTS: tuple[Example, ...] = (
    ev.SessionOpened(id=SHELVED, name="shelved"),
    (ev.NoteAdded(text="for later"), "ada"),
    ev.SessionArchived(
        bundle="archive/shelved.wakeful", digest="cd" * 32,
        state=msgspec.to_builtins(flatten(Session(id=SHELVED, name="shelved", opened_at=1_700_000_000_000_000, seq=2, knowledge=Knowledge(handoff="for later")))),
    ),
    ev.SessionRestored(bundle="archive/shelved.wakeful"),
)  # fmt: skip

SESSIONS: dict[str, tuple[Example, ...]] = {
    PAYROLL: PAYROLL_EVENTS, DRAFT: DRAFT_EVENTS, MOVED: MOVED_EVENTS, SHELVED: SHELVED_EVENTS,
}  # fmt: skip
