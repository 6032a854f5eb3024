"""Judge the system calls: decide the effect of each call on a session that is queued, running, asleep or closed.

Each function returns the reply to the caller, or raises CallerError and records nothing. Every race is
decided here, on the present state. The log then shows who made which call, and when.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, assert_never

from msgspec.structs import replace

from wakeful.core.calls import call_types as calls
from wakeful.core.calls.roles import refuse_damaged
from wakeful.core.deciding.acting_agent import find_hand_off_rule
from wakeful.core.deciding.decision import Decision
from wakeful.core.deciding.owed import start_versions
from wakeful.core.deciding.rule_of_two import find_untrusted_source
from wakeful.core.deciding.run_start import refuse_observing
from wakeful.core.deciding.spec_declaration import declare, declare_again, new_id
from wakeful.core.deciding.working_state import Core
from wakeful.core.record import events as ev
from wakeful.core.record.knowledge import count_bytes
from wakeful.core.record.observations import Declaration
from wakeful.core.record.state import Archived, Departed, Moving, Question, Session, Terminated
from wakeful.core.record.todo import change_items, count_items, say_items
from wakeful.core.spec.bindings import WebhookBinding
from wakeful.core.spec.limits import ADVICE, LimitName
from wakeful.core.spec.session import Role, SessionSpec
from wakeful.errors import CallerError
from wakeful.text.display import count

STRENGTH: dict[str, int] = {"shutdown": 0, "replace": 1, "suspend": 2, "interrupt": 3, "cancel": 4, "terminate": 5}
LONGEST_KEY = 200
LONGEST_SLEEP_SECONDS = 1000 * 366 * 86400.0


class NothingAsked(CallerError):
    """Raised for an answer to a session that asks no question, or no longer asks it."""


# Takes the call, the core, the decision that its events go to, and the call with its author. Returns the reply.
Judge = Callable[[Any, Core, Decision, calls.Called], str]


class CallRule(NamedTuple):
    """The rule of one call. `call_rules.py` joins the tables of the three families."""

    judge: Judge
    # The kinds of the first record that the call leaves in a session's log. A repeated call is found by them. Empty if
    # the call has no key, or if any record will do.
    first_kinds: tuple[str, ...] = ()
    # The lowest role that may make the call. Only a maintainer may make a call that cannot be undone, or that changes
    # the owner of a session.
    role: Role = "contributor"
    # True if the call asks for a run. Its answer then says why the run does not start (rule 20).
    asks_for_run: bool = False


# The first records of a call that stops a run, or withdraws a wake.
_STOPS = ("run_stop_requested", "wake_withdrawn")


def emit_call(core: Core, decision: Decision, session: Session, event: ev.Event, called: calls.Called) -> Session:
    return core.emit(decision, session.id, event, author=called.author, run=called.run, key=called.key)


def find_living(core: Core, name: str) -> Session:
    """Return the session if its log accepts calls. Otherwise raises CallerError with the reason and the remedy."""
    session = core.state.by_name(name)
    refuse_damaged(session)
    match session.closed:
        case None:
            return session
        case Archived():
            raise CallerError(f"{name} is archived; `wakeful load {name}` brings it back")
        case Departed():
            raise CallerError(
                f"{name} was moved to another host; its log stays here, and "
                f"`wakeful fork {name} --as NEW` goes on from it"
            )
        case Moving():
            raise CallerError(
                f"{name} is frozen: it is moving to another host; feed its receipt back with "
                f"`wakeful migrate {name} --receipt FILE`, or give the move up with `wakeful migrate {name} --give-up`"
            )
        case Terminated():
            raise CallerError(f"{name} is terminated; `wakeful open {name} --again` reopens it")
        case _:
            assert_never(session.closed)


def find_resting(core: Core, name: str, what: str) -> Session:
    session = find_living(core, name)
    if session.run is not None:
        raise CallerError(f"{name} is running; {what} it when it rests (`wakeful interrupt {name}` stops it)")
    writing = core.looked.writing.get(session.id)
    if writing is not None and writing.awaited is None:
        raise CallerError(f"{name} has files written by {writing.words} just now; {what} it in a moment")
    return session


def find_runnable(core: Core, name: str, *, is_question: bool = False) -> Session:
    """Return the session if a person may have it run. Otherwise raises CallerError with the reason and the remedy.

    A question does not need `run` in the spec.
    """
    session = find_living(core, name)
    if (doubt := core.looked.untrusted.get(name) or session.trust_words) is not None:
        raise CallerError(f"{name} {doubt}")
    if not session.declaration.is_declared or session.spec is None:
        raise CallerError(f"{name} is undeclared: its file is gone from sessions.d; put it back to run it")
    if session.spec.run is None and not is_question:
        raise CallerError(f"{name} has no `run`: it is only for conversations; add `run:` to its spec to activate it")
    if not session.spec.enabled:
        raise CallerError(f"{name} is disabled; set `enabled: true` in its spec to run it")
    if session.lineage.detached:
        raise CallerError(
            f"{name} is a fork, and {', '.join(session.lineage.detached)} would overwrite what its parent writes; "
            f"fork with --workspace, or give it a spec of its own: sessions.d/{name}.yaml"
        )
    return session


def _judge_trace(call: calls.Trace, core: Core, decision: Decision, called: calls.Called) -> str:
    session = find_runnable(core, call.name)
    if call.observe and (refused := refuse_observing(core, session)) is not None:
        raise CallerError(refused)
    event = ev.ActivationRequested(
        position=session.activation.position + 1, note="traced", trace="observed" if call.observe else "declared"
    )
    emit_call(core, decision, session, event, called)
    return "its next run is traced"


def _judge_activate(call: calls.Activate, core: Core, decision: Decision, called: calls.Called) -> str:
    session = find_runnable(core, call.name)
    event = ev.ActivationRequested(position=session.activation.position + 1, note=call.note, fresh=call.fresh)
    emit_call(core, decision, session, event, called)
    return "activated" if session.run is None else "activated: it runs once more when the present run has ended"


def _judge_resume(call: calls.Resume, core: Core, decision: Decision, called: calls.Called) -> str:
    session = find_living(core, call.name)
    if session.hold is None and (session.wake is None or session.wake.retry_at is None):
        return "not held: nothing to resume"
    emit_call(
        core, decision, session, ev.SessionResumed(reason=f"resumed by {called.author}", is_forgiven=True), called
    )
    return "resumed"


def _judge_sleep(call: calls.Sleep, core: Core, decision: Decision, called: calls.Called) -> str:
    session = find_living(core, call.name)
    wall = decision.moment.wall
    if call.seconds is not None and not 0 < call.seconds < LONGEST_SLEEP_SECONDS:
        raise CallerError(
            f"a sleep lasts more than 0 seconds and at most a thousand years, not {call.seconds:g}; "
            "without a time it lasts until resumed"
        )
    until = (
        call.until if call.until is not None else wall + int(call.seconds * 1e6) if call.seconds is not None else None
    )
    if until is not None and until <= wall:
        raise CallerError("the time to sleep until has passed already; give a later one, or --for a duration")
    if until is not None and until - wall > LONGEST_SLEEP_SECONDS * 1e6:
        raise CallerError(
            "the time to sleep until is more than a thousand years away; without a time it lasts until resumed"
        )
    length = (until - wall) / 1e6 if until is not None else None
    words = call.words or f"snoozed by {called.author}"
    emit_call(
        core,
        decision,
        session,
        ev.SessionSlept(hold=ev.Hold(kind="snoozed", words=words, until=until, length_seconds=length)),
        called,
    )
    return "sleeps" if session.run is None else "sleeps when the present run has ended"


def _judge_sleep_all(call: calls.SleepAll, core: Core, decision: Decision, called: calls.Called) -> str:
    """Set the brake. Runs under way are stopped as by a shutdown, so their causes stay owed."""
    words = call.words or f"brake: sleep --all by {called.author}"
    fresh = [session for session in core.state if not session.is_shut and session.brake is None]
    for session in fresh:
        session = emit_call(core, decision, session, ev.SessionBraked(words=words), called)
        if session.run is not None and session.run.stop is None and session.run.staged is None:
            emit_call(core, decision, session, ev.RunStopRequested(run=session.run.run, why="shutdown"), called)
    if not fresh:
        return "the brake is on already"
    return f"the brake is on for {count(len(fresh), 'session')}; `wakeful resume --all` releases it"


def _judge_resume_all(call: calls.ResumeAll, core: Core, decision: Decision, called: calls.Called) -> str:
    braked = [core.state.get(session_id) for session_id in sorted(core.state.braked)]
    for session in braked:
        if not session.is_shut:
            emit_call(core, decision, session, ev.SessionReleased(), called)
    return f"the brake is released: {count(len(braked), 'session')} may go on" if braked else "the brake is not on"


def _judge_answer(call: calls.Answer, core: Core, decision: Decision, called: calls.Called) -> str:
    session = find_living(core, call.name)
    if session.hold is None or session.hold.kind != "asking" or session.wake is None:
        raise NothingAsked(f"{call.name} asks no question; `wakeful show {call.name}` shows its state")
    if call.rationale is not None:
        check_size(core, "note", call.rationale)
    if session.question is not None:
        return _answer_agent(core, decision, session, session.question, call, called)
    match call.text.strip().lower():
        case "yes" | "y":
            event = ev.QuestionAnswered(wake=session.wake.wake, text=call.text, rationale=call.rationale)
            emit_call(core, decision, session, event, called)
            return "runs"
        case "no" | "n":
            return _park(core, decision, session, called, "refused", call.rationale)
        case _:
            raise CallerError(f"{call.name} asks whether it may run: answer yes or no")


def _answer_agent(
    core: Core, decision: Decision, session: Session, question: Question, call: calls.Answer, called: calls.Called
) -> str:
    """Record the answer. The next run continues from the question, with this answer."""
    assert session.wake is not None
    check_size(core, "message", call.text)
    text = call.text.strip()
    if question.is_permission and text.lower() not in ("yes", "y", "no", "n"):
        raise CallerError(f"{call.name} asks whether its agent may do that: answer yes or no")
    if not text:
        raise CallerError(f"{call.name} asks: {question.text}; an answer has words")
    event = ev.QuestionAnswered(wake=session.wake.wake, text=text, call=question.call, rationale=call.rationale or None)
    emit_call(core, decision, session, event, called)
    return "goes on"


def _judge_suspend(call: calls.Suspend, core: Core, decision: Decision, called: calls.Called) -> str:
    session = find_living(core, call.name)
    if session.run is not None:
        return _stop(core, decision, session, "suspend", called, "suspends when the present run has ended")
    if session.wake is not None:
        return _park(core, decision, session, called, "suspended")
    return "suspended already"


def _judge_interrupt(call: calls.Interrupt, core: Core, decision: Decision, called: calls.Called) -> str:
    session = find_living(core, call.name)
    if session.run is not None:
        return _stop(core, decision, session, "interrupt", called, "interrupting")
    if session.wake is not None:
        return _park(core, decision, session, called, "interrupted")
    raise CallerError(f"{call.name} is not running; there is nothing to interrupt")


def _judge_cancel(call: calls.Cancel, core: Core, decision: Decision, called: calls.Called) -> str:
    session = find_living(core, call.name)
    if session.run is not None:
        return _stop(core, decision, session, "cancel", called, "cancelling")
    # After a failure the readers are held. A cancel releases them (rule 31).
    if session.wake is not None or session.marks.is_suspect:
        return _park(core, decision, session, called, "cancelled")
    raise CallerError(f"{call.name} is neither running nor queued; there is nothing to cancel")


def _judge_terminate(call: calls.Terminate, core: Core, decision: Decision, called: calls.Called) -> str:
    if core.state.by_name(call.name).is_terminated:
        return "terminated already"
    session = find_living(core, call.name)
    if session.run is not None:
        return _stop(
            core, decision, session, "terminate", called, "terminates when its run has been stopped", call.reason
        )
    emit_call(core, decision, session, ev.SessionTerminated(reason=call.reason), called)
    core.detach(decision, session)
    return "terminated"


def _judge_open(call: calls.Open, core: Core, decision: Decision, called: calls.Called) -> str:
    if call.spec is not None and call.name not in core.state.ids:
        return _open_new(call, call.spec, core, decision, called)
    session = core.state.by_name(call.name)
    if not session.is_terminated:
        return "open already"
    if isinstance(session.closed, Archived):
        raise CallerError(f"{call.name} is archived; `wakeful load {call.name}` brings it back first")
    if isinstance(session.closed, Moving | Departed):
        raise CallerError(f"{call.name} is on another host; open it there")
    if not call.again:
        raise CallerError(f"{call.name} is terminated; `wakeful open {call.name} --again` reopens it with its history")
    declare_again(core, decision, emit_call(core, decision, session, ev.SessionReopened(), called))
    return "opened again; its spec is read anew"


def _open_new(call: calls.Open, spec: SessionSpec, core: Core, decision: Decision, called: calls.Called) -> str:
    """Open a session that no file declares. Its spec is only in the log."""
    if call.name in core.looked.refused:
        raise CallerError(f"a file declares {call.name} already, and it is refused; mend that file instead")
    if refused := core.graph.admit([spec], set()):
        raise CallerError(f"{call.name} cannot be opened: {refused[spec.name]}")
    session_id = new_id(core, call.name, decision.moment.wall)
    opened = ev.SessionOpened(id=session_id, name=call.name)
    core.emit(decision, session_id, opened, author=called.author, key=called.key)
    declared = Declaration(spec, call.text_digest, is_filed=False, text=call.text)
    declare(core, decision, declared, author=called.author)
    core.touch_around(decision, call.name)
    if spec.agent is not None:
        return f"opened; `wakeful talk {call.name}` talks to {spec.agent} there"
    return f"opened; it has no agent: `wakeful ask {call.name} TEXT --agent NAME` puts a question to one"


def _judge_trust(call: calls.Trust, core: Core, decision: Decision, called: calls.Called) -> str:
    """Record the trust. The ledger of trusted specs is updated from this record."""
    session = find_living(core, call.name)
    # The spec of a bundle may have another name than the session has here.
    spec = (
        replace(session.spec, name=call.name)
        if session.declaration.needs_trust is not None and session.spec is not None
        else None
    )
    if spec is not None and (refused := core.graph.admit([spec], set())):
        raise CallerError(f"{call.name} cannot be declared: {refused[call.name]}")
    session = emit_call(core, decision, session, ev.SpecTrusted(digest=call.digest, files=call.files), called)
    if spec is not None:
        declare_again(core, decision, replace(session, spec=spec))
    return "trusted"


def _judge_rename(call: calls.Rename, core: Core, decision: Decision, called: calls.Called) -> str:
    session = find_living(core, call.name)
    if not session.declaration.is_declared:
        raise CallerError(
            f"{call.name} is undeclared: its file is gone, so there is nothing to rename; put the file back first"
        )
    if call.new in core.state.ids:
        raise CallerError(f"{call.new} is the name of another session; choose one that is free")
    if session.run is not None:
        raise CallerError(f"{call.name} is running; rename it when it rests")
    renamed = emit_call(core, decision, session, ev.SessionRenamed(old=call.name, new=call.new), called)
    core.detach(decision, session)
    if not session.declaration.is_filed and session.spec is not None:
        # No file declares a fork, so its spec takes the new name here.
        declare_again(core, decision, replace(renamed, spec=replace(session.spec, name=call.new)))
    return f"renamed to {call.new}"


def _judge_send(call: calls.Send, core: Core, decision: Decision, called: calls.Called) -> str:
    receiver = find_living(core, call.name)
    check_size(core, "message", call.text)
    check_level(core, receiver, "conversation", receiver.knowledge.conversation.size_bytes + count_bytes(call.text))
    check_level(core, receiver, "mailbox", receiver.mailbox.position + 1 - int(receiver.marks.seen.get("message", "0")))
    sender = core.state.by_name(call.sender) if call.sender is not None else None
    chain = (*sender.run.chain, sender.id) if sender is not None and sender.run is not None else ()
    position = receiver.mailbox.position + 1
    # The mark names the sender, not the session that first read the untrusted text, because the message can also carry
    # the sender's own knowledge.
    source = (
        sender.name if sender is not None and find_untrusted_source(core.untrusted_text, sender) is not None else None
    )
    message = ev.MessageAdded(
        position=position, sender=called.author, text=call.text, wake=call.wake, chain=chain, untrusted_by=source
    )
    # Not the run that sent it: its number belongs to the sender's log.
    core.emit(decision, receiver.id, message, author=called.author, key=called.key)
    if sender is not None:
        # Sent and received are one transaction (rule 39).
        core.emit(
            decision,
            sender.id,
            ev.MessageSent(receiver=call.name, position=position, text=call.text),
            author=called.author,
        )
    return f"message {position} is in the mailbox of {call.name}"


def _judge_deliver(call: calls.Deliver, core: Core, decision: Decision, called: calls.Called) -> str:
    session = find_living(core, call.name)
    binding = session.spec.binding(call.binding) if session.spec is not None else None
    if not isinstance(binding, WebhookBinding) or not session.declaration.is_declared:
        raise CallerError(f"{call.name} has no webhook called {call.binding!r} any more; nothing was taken")
    known = session.find_webhook(binding.identity)
    position = known.position + (not call.is_filtered)
    if not call.is_filtered:
        check_level(core, session, "deliveries", position - int(session.marks.seen.get(binding.identity, "0")))
    event = ev.DeliveryReceived(
        binding=binding.name,
        key=binding.identity,
        position=position,
        sender=call.sender,
        delivery=call.delivery,
        event=call.event,
        size_bytes=call.size_bytes,
        payload=call.payload,
        suffix=call.suffix,
        is_filtered=call.is_filtered,
        reason=call.reason,
    )
    emit_call(core, decision, session, event, called)
    return f"filtered: {call.reason}" if call.is_filtered else f"delivery {position} of {binding.name} is recorded"


def _judge_note(call: calls.Note, core: Core, decision: Decision, called: calls.Called) -> str:
    session = find_living(core, call.name)
    _refuse_aside(session, called, "the hand-off")
    check_size(core, "note", call.text)
    check_level(core, session, "conversation", session.knowledge.conversation.size_bytes + count_bytes(call.text))
    emit_call(core, decision, session, ev.NoteAdded(text=call.text), called)
    return "left a hand-off"


def _refuse_aside(session: Session, called: calls.Called, what: str) -> None:
    """Raise CallerError if the calling run only answers a message for another agent than the owner.

    Such a run must not change the hand-off or the to-do list.
    """
    if (
        session.run is not None
        and called.run == session.run.run
        and find_hand_off_rule(session, session.run) == "withheld"
    ):
        raise CallerError(
            f"this run answers one message in {session.name}, and {what} belongs to the agent that works there; "
            "say it in the answer"
        )


def _judge_remember(call: calls.Remember, core: Core, decision: Decision, called: calls.Called) -> str:
    session = find_living(core, call.name)
    if not call.key or len(call.key) > LONGEST_KEY:
        raise CallerError(f"a fact's key has 1 to {LONGEST_KEY} characters")
    check_size(core, "fact", call.value)
    if call.for_now:
        emit_call(core, decision, session, ev.MemorySet(key=call.key, value=call.value), called)
        return f"kept {call.key} for this conversation"
    if call.confidence is not None and not 0 <= call.confidence <= 1:
        raise CallerError(f"a confidence lies between 0 and 1, not {call.confidence:g}")
    if call.source is not None and not 1 <= call.source <= session.seq:
        raise CallerError(
            f"{call.name} has records 1 to {session.seq}; a fact cannot be drawn from record {call.source}"
        )
    check_level(core, session, "facts", len(session.knowledge.facts.keys() | {call.key}))
    fact = ev.FactSet(
        key=call.key, value=call.value, rationale=call.rationale, confidence=call.confidence, source=call.source
    )
    emit_call(core, decision, session, fact, called)
    return f"remembered {call.key}"


def _judge_forget(call: calls.Forget, core: Core, decision: Decision, called: calls.Called) -> str:
    session = find_living(core, call.name)
    if call.for_now:
        if call.key not in session.knowledge.memory:
            raise CallerError(
                f"{call.name} keeps no {call.key!r} for this conversation; "
                f"`wakeful show {call.name}` lists what it does"
            )
        emit_call(core, decision, session, ev.MemorySet(key=call.key, value=None), called)
        return f"forgot {call.key}"
    if call.key not in session.knowledge.facts:
        raise CallerError(f"{call.name} has no fact {call.key!r}; `wakeful facts {call.name}` lists them")
    emit_call(core, decision, session, ev.FactRetracted(key=call.key, rationale=call.rationale), called)
    return f"forgot {call.key}"


def _judge_todo(call: calls.Todo, core: Core, decision: Decision, called: calls.Called) -> str:
    session = find_living(core, call.name)
    _refuse_aside(session, called, "the to-do list")
    items = change_items(session.knowledge.todo, call)
    if items != session.knowledge.todo:
        emit_call(core, decision, session, ev.TodoSet(items=items), called)
    return (
        "\n".join((f"the to-do list: {count_items(items)}", *say_items(items))) if items else "the to-do list is empty"
    )


def check_size(core: Core, what: LimitName, text: str) -> None:
    """Raise CallerError if a text exceeds its limit. Texts have limits because the state and snapshots hold them."""
    problem = core.settings.limits.refuse_beyond(what, count_bytes(text))
    if problem is not None:
        raise CallerError(f"{problem}; name a file instead")


def check_level(core: Core, session: Session, what: LimitName, amount: int) -> None:
    """Raise CallerError, with advice, if the session would exceed a hard limit."""
    problem = core.settings.limits.refuse_beyond(what, amount)
    if problem is not None:
        raise CallerError(
            f"{session.name} has reached a limit: {problem}; {ADVICE[what].replace('NAME', session.name)}"
        )


def _stop(
    core: Core,
    decision: Decision,
    session: Session,
    why: ev.StopWord,
    called: calls.Called,
    words: str,
    reason: str | None = None,
) -> str:
    """Request a stop. A stronger stop replaces a weaker stop (rule 23), and a repeated stop changes nothing."""
    run = session.run
    assert run is not None
    if run.stop is not None and STRENGTH[run.stop.why] >= STRENGTH[why]:
        return f"{run.stop.why} was asked for already by {run.stop.by}"
    # The run has succeeded. Only a termination is still accepted, and it follows the success (rule 23).
    if run.staged is not None and why != "terminate":
        return "its run has succeeded, and its outputs are being put in place; it ends in a moment"
    emit_call(core, decision, session, ev.RunStopRequested(run=run.run, why=why, reason=reason), called)
    return words


def _park(
    core: Core, decision: Decision, session: Session, called: calls.Called, word: str, rationale: str | None = None
) -> str:
    """Give up a queued wake. The versions of its causes, and those its run would have seen, become seen (rule 19)."""
    if session.wake is None:
        versions = session.marks.seen
    else:
        told = {cause.key: cause.new for cause in session.wake.causes if cause.new is not None}
        versions = told | start_versions(core.state, core.looked, session)
    event = ev.WakeWithdrawn(
        wake=session.tally.wakes,
        reason=f"{word} by {called.author}",
        versions=versions,
        is_cancelled=word == "cancelled",
        rationale=rationale or None,
    )
    emit_call(core, decision, session, event, called)
    became = "count as seen" if word == "cancelled" else "are parked"
    return f"{word}: its causes {became}, newer ones wake it"


LIFECYCLE_CALLS: dict[type[calls.Call], CallRule] = {
    calls.Trace: CallRule(_judge_trace, ("activation_requested",), role="maintainer", asks_for_run=True),
    calls.Activate: CallRule(_judge_activate, ("activation_requested",), asks_for_run=True),
    calls.Resume: CallRule(_judge_resume, ("session_resumed",)),
    calls.Sleep: CallRule(_judge_sleep, ("session_slept",)),
    calls.SleepAll: CallRule(_judge_sleep_all, ("session_braked",)),
    calls.ResumeAll: CallRule(_judge_resume_all, ("session_released",)),
    calls.Answer: CallRule(_judge_answer, ("question_answered", "wake_withdrawn")),
    calls.Suspend: CallRule(_judge_suspend, _STOPS),
    calls.Interrupt: CallRule(_judge_interrupt, _STOPS),
    calls.Cancel: CallRule(_judge_cancel, _STOPS),
    calls.Terminate: CallRule(_judge_terminate, ("run_stop_requested", "session_terminated"), role="maintainer"),
    calls.Open: CallRule(_judge_open, ("session_reopened", "session_opened"), role="maintainer"),
    calls.Trust: CallRule(_judge_trust, role="maintainer"),
    calls.Rename: CallRule(_judge_rename, ("session_renamed",), role="maintainer"),
    calls.Send: CallRule(_judge_send, ("message_added",)),
    calls.Deliver: CallRule(_judge_deliver, ("delivery_received",)),
    calls.Note: CallRule(_judge_note, ("note_added",)),
    calls.Remember: CallRule(_judge_remember, ("fact_set", "memory_set")),
    calls.Forget: CallRule(_judge_forget, ("fact_retracted", "memory_set")),
    calls.Todo: CallRule(_judge_todo, ("todo_set",)),
}
