"""One line of text for each kind of record that the daemon's narration leaves out, as `log` and `history` print it.

Narration prints what a person waits for. The log leaves nothing out. Nothing is escaped here: the printer does that.
"""

from __future__ import annotations

import re

from wakeful.core.agents.turns import name_actor
from wakeful.core.record import events as ev
from wakeful.core.record.knowledge import Origin
from wakeful.text.display import count


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
            return f"takes what is there as seen, without a run: {count(len(versions), 'version')}"
        case ev.SpecTrusted(files=files):
            return "trusted as it stands" + (f": {', '.join(files)}" if files else "")
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
            return "worked from now on by " + (
                " ".join(part for part in (agent, model) if part) or "whom its spec names"
            )
        case ev.OutputsStaged(run=run, outputs=outputs):
            return f"run {run} has succeeded; {count(len(outputs), 'output')} to be put in place"
        case ev.OutputsLanded(run=run):
            return f"what run {run} wrote is in place"
        case ev.PayloadErased(erased=erased, kind=kind, reason=reason):
            return f"the payload of record {erased} ({kind}) was erased" + (f": {reason}" if reason else "")
        case ev.ClockRebased(binding=binding, old=old, new=new):
            return f"{binding} counts from {new} on, no longer from {old}"
        case _:
            # The event is narrated elsewhere, or is of a newer release: its kind, in words.
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
                f"{name_actor(event.run, event.sub)}: agent {agent} with {model} is told about "
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
