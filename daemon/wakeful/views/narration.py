"""Events as one readable line each. Pure: an event in, a line out.

`narrate` makes the lines that the daemon prints while it runs, and that `follow` shows. They report the events that a
person waits for. Names and paths come from outside, so `narrate` escapes their control characters before they reach a
terminal. `tell` makes the lines of the other kinds of record. `log` and `history` use both, because they show every
record. `tell` escapes nothing: the printer does that.
"""

from __future__ import annotations

import json
import re

from wakeful.core.agents.turns import name_actor
from wakeful.core.record import events as ev
from wakeful.core.record.knowledge import Origin
from wakeful.core.record.observations import Traced
from wakeful.core.record.state import Session
from wakeful.core.record.todo import count_items
from wakeful.core.spec.bindings import FileBinding
from wakeful.system.journal import INFO, NOTICE, WARNING, Priority
from wakeful.text.display import count, escape

PATHS_SHOWN = 3
# The most characters of a hint. A hint ends with the line of YAML that allows the denied access, so it must not be cut.
HINT_SHOWN = 380


def narrate(event: ev.Event) -> str | None:
    """Return the line for an event. None for an event that no person waits for."""
    return _tell_run(event) or _tell_session(event) or _tell_history(event)


def _tell_run(event: ev.Event) -> str | None:
    """Describe an event of a run: its causes, its start, its steps, its result."""
    match event:
        case ev.WakeRequested(causes=causes) | ev.WakeExtended(causes=causes):
            return "wakes: " + "; ".join(_cause(cause) for cause in causes)
        case ev.WakeWithdrawn(reason=reason, rationale=rationale):
            return f"wake withdrawn: {reason}" + (f": {visible(rationale, 60)}" if rationale else "")
        case ev.RunStarted(run=run, attempt=attempt, trace=trace):
            traced = {None: "", "declared": ", traced", "observed": ", traced, with nothing denied"}[trace]
            return f"run {run} started" + (f", attempt {attempt + 1}" if attempt else "") + traced
        case ev.RunStopRequested(run=run, why=why):
            return f"run {run}: {why} requested"
        case ev.RunReadopted(run=run):
            return f"run {run} goes on: it outlived the daemon that started it"
        case ev.OutputsLanded(run=run, kept=(first, *more)):
            rest = f" and {len(more)} more" if more else ""
            return (
                f"run {run}: {visible(first.path)}{rest} not put in place: {visible(first.words)}; kept in "
                f"{visible(first.kept or 'no place')}"
            )
        case ev.RunFinished():
            return _finished(event)
        case ev.TurnAnswered(answer=answer, purpose="work") if answer.text:
            return f"{visible(name_actor(event.run, event.sub))} says: {visible(answer.text)}"
        case ev.TurnFailed(words=words):
            return f"{visible(name_actor(event.run, event.sub))}: no answer from its model: {visible(words)}"
        case ev.SubagentHalted(words=words):
            return f"{visible(name_actor(event.run, event.sub))} cannot go on: {visible(words)}"
        case ev.ToolCalled(call=call):
            return (
                f"{visible(name_actor(event.run, event.sub))} calls {visible(call.name)} "
                f"{visible(_say_arguments(call.arguments))}"
            ).rstrip()
        case ev.QuestionAsked(run=run, text=text):
            return f"run {run} asks: {visible(text)}"
        case ev.SlotSkipped(binding=binding, slot=slot, reason=reason):
            return f"slot {slot} of {visible(binding)} skipped: {reason}"
        case _:
            return None


def _tell_session(event: ev.Event) -> str | None:
    """Describe a change of the session's state, or a message, hand-off, fact or to-do list that the session got."""
    match event:
        case ev.SessionSuspended():
            return "suspended"
        case ev.SessionSlept(hold=hold):
            return f"sleeps: {visible(hold.words)}"
        case ev.SessionResumed(reason=reason):
            return f"resumed: {visible(reason)}"
        case ev.SessionBraked(words=words):
            return f"sleeps: {visible(words)}"
        case ev.SessionReleased():
            return "may go on: the brake is released"
        case ev.QuestionAnswered(is_unanswered=True):
            return "denied: no answer came in time"
        case ev.QuestionAnswered(text=text, rationale=rationale):
            return f"answered: {visible(text, 60)}" + (f", because {visible(rationale, 60)}" if rationale else "")
        case ev.SessionTerminated():
            return "terminated"
        case ev.NotificationDelivered(notifier=notifier, event=what, about=about):
            return f"notified {visible(notifier)} of record {about} ({what})"
        case ev.NotificationAbandoned(notifier=notifier, event=what, about=about, attempts=attempts, words=words):
            return (
                f"could not notify {visible(notifier)} of record {about} ({what}), "
                f"given up after {count(attempts, 'attempt')}: {visible(words)}"
            )
        case ev.SpecDeclared():
            return "declared"
        case ev.SpecRemoved():
            return "undeclared: its file is gone"
        case ev.MessageAdded(sender=sender, text=text):
            return f"message from {visible(sender)}: {visible(text, 60)}"
        case ev.DeliveryReceived(is_filtered=True):
            return f"delivery from {event.sender} {_name_delivery(event)} filtered: {visible(event.reason or '', 100)}"
        case ev.DeliveryReceived(position=position):
            return f"delivery {position} from {event.sender} {_name_delivery(event)} to {visible(event.binding)}"
        case ev.NoteAdded(text=text):
            return f"hand-off: {visible(text, 60)}"
        case ev.FactSet(key=key, value=value):
            return f"remembers {visible(key)} = {visible(value, 60)}"
        case ev.TodoSet(items=items):
            doing = [item.text for item in items if item.status == "doing"]
            return f"to-do list: {count_items(items)}" + (f"; doing: {visible('; '.join(doing), 60)}" if doing else "")
        case _:
            return None


def _tell_history(event: ev.Event) -> str | None:
    """Describe a call on the session's history, or a change of its host."""
    match event:
        case ev.SessionRewound(to=to):
            return f"goes on from record {to}"
        case ev.SessionForked(name=name, position=position):
            return f"forked at record {position} as {visible(name)}"
        case ev.SessionMerged(name=name, taken=taken, retracted=retracted, conflicts=conflicts):
            left = f", {len(conflicts)} to resolve" if conflicts else ""
            return f"took {count(len(taken) + len(retracted), 'fact')} of {visible(name)}{left}"
        case ev.OutputsAdopted(by=by):
            return f"has the files of {visible(by)}"
        case ev.SessionFrozen(to=to):
            return f"frozen: it moves to {visible(to)}"
        case ev.SessionThawed():
            return "stays: its move was given up"
        case ev.SessionDeparted():
            return "lives on another host now"
        case ev.SessionArrived(origin=origin):
            return f"came from {visible(origin)}"
        case ev.SessionArchived(bundle=bundle):
            return f"archived in {visible(bundle)}"
        case ev.SessionRestored():
            return "back from its archive"
        case _:
            return None


def grade(event: ev.Event) -> Priority:
    """Return how important an event is for a person, as a syslog level."""
    match event:
        case ev.RunFinished(outcome="failed" | "lost") | ev.NotificationAbandoned():
            return WARNING
        case ev.SessionSlept() | ev.SessionTerminated() | ev.SpecRemoved() | ev.SlotSkipped():
            return NOTICE
        case _:
            return INFO


def _cause(cause: ev.Cause) -> str:
    if cause.kind == "first":
        return "first sight"
    if cause.kind == "activation":
        return "activated" + (f" ({visible(cause.reason, 40)})" if cause.reason else "")
    words = visible(cause.binding)
    if cause.reason:
        words += f" {visible(cause.reason, 40)}"
    if cause.paths:
        shown = ", ".join(f"{path.change} {visible(path.path)}" for path in cause.paths[:PATHS_SHOWN])
        rest = len(cause.paths) - PATHS_SHOWN
        words += f" ({shown}{f' and {rest} more' if rest > 0 else ''})"
    elif cause.kind in ("cron", "every", "message", "session", "webhook") and cause.new:
        words += f" ({cause.new})"
    return words


def _name_delivery(event: ev.DeliveryReceived) -> str:
    kind = f"{visible(event.event, 60)} " if event.event is not None else ""
    return f"({kind}{visible(event.delivery, 60)})"


def _finished(event: ev.RunFinished) -> str:
    words = f"run {event.run} {event.outcome}"
    if event.usage.wall_seconds:
        words += f" in {event.usage.wall_seconds:.2f} s"
    if event.reason:
        words += f": {visible(event.reason, 100)}"
    if event.retry_at is not None and event.backoff_seconds is not None:
        words += f"; again in {event.backoff_seconds:.0f} s"
    if event.hint:
        words += f"; {visible(event.hint, HINT_SHOWN)}"
    if event.trace is not None:
        words += _traced(event.trace)
    if event.undeclared:
        words += f"; undeclared changes: {visible(', '.join(event.undeclared), 100)}"
    return words


def _traced(trace: Traced) -> str:
    found = len(trace.denied) + trace.more
    things = count(found, "thing")
    words = f"; {things} outside its reach" if found and trace.is_observed else f"; {things} denied" if found else ""
    return words + (f"; {visible(trace.words)}" if trace.words else "")


def _say_arguments(text: str) -> str:
    """Describe the arguments of a tool call. Text that is not a JSON object is returned unchanged."""
    try:
        found = json.loads(text)
    except ValueError:
        return text
    return ", ".join(f"{key}: {value}" for key, value in found.items()) if isinstance(found, dict) else text


def visible(text: str, most: int = 200) -> str:
    """Show text from outside as one printable line."""
    shown = escape(text[: most + 1])
    return shown[: most - 1] + "…" if len(shown) > most else shown


def suggest_edit(sessions: list[Session]) -> str | None:
    """Suggest a file to edit next: a literal input of the most important session that is at rest."""
    resting = (s for s in sessions if s.is_armed and s.run is None and s.spec is not None)
    for session in sorted(resting, key=lambda s: -s.spec.priority if s.spec else 0):
        assert session.spec is not None
        for binding in session.spec.bindings:
            if (
                isinstance(binding, FileBinding)
                and binding.wake
                and binding.access == "read"
                and not set(binding.pattern) & set("*?[")
            ):
                return f"edit {binding.pattern} to see {session.name} wake"
    return None


def tell(event: ev.Event) -> str:
    match event:
        case ev.SessionOpened(id=session_id, name=name, origin=None):
            return f"opened as {name}, with the id {session_id}"
        case ev.SessionOpened(name=name, origin=Origin() as origin):
            return f"opened as {name}, a fork of {origin.name} at its record {origin.seq}"
        case ev.SessionRenamed(old=old, new=new):
            return f"renamed from {old} to {new}"
        case ev.SessionReopened(reason=reason):
            return "opened again" + (f": {reason}" if reason else "")
        case ev.SessionAdopted(versions=versions):
            return f"takes the present versions as seen, without a run: {count(len(versions), 'version')}"
        case ev.SpecTrusted(files=files):
            return "trusted as it is now" + (f": {', '.join(files)}" if files else "")
        case ev.ActivationRequested(note=note, fresh=is_fresh):
            return "activation requested" + (", fresh" if is_fresh else "") + (f": {note}" if note else "")
        case ev.MessageSent(receiver=receiver, position=position, text=text):
            return f"message {position} sent to {receiver}: {text}"
        case ev.FactRetracted(key=key, rationale=rationale):
            return f"forgets {key}" + (f": {rationale}" if rationale else "")
        case ev.MemorySet(key=key, value=value):
            return (
                f"forgets {key} of this conversation"
                if value is None
                else f"keeps {key} = {value} for this conversation"
            )
        case ev.CheckpointMarked(mark=mark, position=position, note=note):
            return f"checkpoint {mark} is record {position}" + (f": {note}" if note else "")
        case ev.ConflictResolved(number=number, key=key, value=value, rationale=rationale):
            settled = f"{key} = {value}" if value is not None else f"{key} is forgotten"
            return f"conflict {number} resolved, {settled}: {rationale}"
        case ev.ConversationCompressed(messages=messages, by=by):
            return f"{count(messages, 'message')} replaced by a summary (by {by})"
        case ev.SessionMigrated(agent=agent, model=model):
            chosen = [f"{what} {name}" for what, name in (("agent", agent), ("model", model)) if name]
            return f"{' and '.join(chosen) or 'the agent and model of its spec'} from the next run on"
        case ev.OutputsStaged(run=run, outputs=outputs):
            return f"run {run} has succeeded; {count(len(outputs), 'output')} to be put in place"
        case ev.OutputsLanded(run=run):
            return f"the outputs of run {run} are in place"
        case ev.PayloadErased(erased=erased, kind=kind, reason=reason):
            return f"the payload of record {erased} ({kind}) was erased" + (f": {reason}" if reason else "")
        case ev.ClockRebased(binding=binding, old=old, new=new):
            return f"{binding} counts from {new} on, no longer from {old}"
        case _:
            # `narrate` has a line for this event, or a newer release recorded it. Show the name of its class in words.
            return _tell_work(event) or re.sub(r"(?<!^)(?=[A-Z])", " ", type(event).__name__).lower()


def tell_price(event: ev.Event) -> str:
    """Show the tokens and the cost of an answer, in brackets after its text."""
    if not isinstance(event, ev.TurnAnswered):
        return ""
    cost = f", {event.usd:.4f} USD" if event.usd is not None else ""
    return f" [{'about ' if event.usage.is_estimated else ''}{count(event.usage.total, 'token')}{cost}]"


def _tell_work(event: ev.Event) -> str | None:
    """Describe a step of an agent in its run."""
    match event:
        case ev.PromptAssembled(agent=agent, model=model, tokens=tokens, window_tokens=window, window_source=source):
            taken_in = f" of {window:,}" + (f" ({source})" if source else "") if window is not None else ""
            return (
                f"{name_actor(event.run, event.sub)}: agent {agent} with {model} gets about "
                f"{count(sum(tokens.values()), 'token')}{taken_in}"
            )
        case ev.TurnRequested(turn=turn, model=model, input_tokens=tokens):
            return f"{name_actor(event.run, event.sub)} asks {model}, turn {turn}, about {count(tokens, 'token')}"
        case ev.TurnAnswered(run=run, answer=answer, usage=usage, purpose="summary"):
            return f"run {run}: {answer.model} summarised the conversation in {count(usage.output, 'token')}"
        case ev.TurnAnswered(turn=turn, answer=answer, usage=usage):
            calls = f", and calls {', '.join(call.name for call in answer.calls)}" if answer.calls else ""
            return (
                f"{name_actor(event.run, event.sub)}, turn {turn}: {answer.model} answered with "
                f"{'about ' if usage.is_estimated else ''}{count(usage.output, 'token')}{calls}"
            )
        case ev.TurnMetered(run=run, requests=requests, usage=usage, usd=usd):
            cost = f", {usd:.4f} USD" if usd is not None else ""
            return (
                f"run {run} has spent {'about ' if usage.is_estimated else ''}{count(usage.total, 'token')}{cost} "
                f"until now, in {count(requests, 'request')}"
            )
        case ev.ToolReturned(name=name, is_error=is_error, text=text):
            return f"{name_actor(event.run, event.sub)}: {name} {'failed' if is_error else 'returned'}: {text}"
        case ev.WorkHalted(run=run, hold=hold):
            return f"run {run} cannot go on: {hold.words}"
        case _:
            return None
