"""The system calls judged: what each does to a session that is queued, running, asleep or closed.

Each returns the words the caller sees, or raises CallerError and records nothing. Every race is
decided here, on the state at this moment: the log then tells who called what, and when.
"""

from __future__ import annotations

from functools import singledispatch

from wakeful.core import calls
from wakeful.core import events as ev
from wakeful.core.decision import Decision
from wakeful.core.machine import Core
from wakeful.core.owed import start_versions
from wakeful.core.state import Session
from wakeful.errors import CallerError

STRENGTH: dict[str, int] = {"shutdown": 0, "replace": 1, "suspend": 2, "interrupt": 3, "cancel": 4, "terminate": 5}
LONGEST_KEY = 200
LONGEST_SLEEP_SECONDS = 1000 * 366 * 86400.0


@singledispatch
def judge_call(call: object, core: Core, decision: Decision, called: calls.Called) -> str:
    raise TypeError(f"no one judges {type(call).__name__}")


def _emit(core: Core, decision: Decision, session: Session, event: ev.Event, called: calls.Called) -> Session:
    return core.emit(decision, session.id, event, author=called.author, run=called.run, key=called.key)


def _living(core: Core, name: str) -> Session:
    session = core.state.by_name(name)
    if session.is_terminated:
        raise CallerError(f"{name} is terminated; `wakeful open {name} --again` reopens it")
    return session


@judge_call.register
def _(call: calls.Activate, core: Core, decision: Decision, called: calls.Called) -> str:
    session = _living(core, call.name)
    if not session.is_declared or session.spec is None:
        raise CallerError(f"{call.name} is undeclared: its file is gone from sessions.d; put it back to run it")
    if session.spec.run is None:
        raise CallerError(f"{call.name} has no `run`: it is a container to talk in; add `run:` to its spec to activate it")
    if not session.spec.enabled:
        raise CallerError(f"{call.name} is disabled; set `enabled: true` in its spec to run it")
    event = ev.ActivationRequested(position=session.activations + 1, note=call.note, fresh=call.fresh)
    _emit(core, decision, session, event, called)
    return "activated" if session.run is None else "activated: it runs once more when the present run has ended"


@judge_call.register
def _(call: calls.Resume, core: Core, decision: Decision, called: calls.Called) -> str:
    session = _living(core, call.name)
    if session.hold is None and (session.wake is None or session.wake.retry_at is None):
        return "not held: nothing to resume"
    _emit(core, decision, session, ev.SessionResumed(reason=f"resumed by {called.author}", is_forgiven=True), called)
    return "resumed"


@judge_call.register
def _(call: calls.Sleep, core: Core, decision: Decision, called: calls.Called) -> str:
    session = _living(core, call.name)
    wall = decision.moment.wall
    if call.seconds is not None and not 0 < call.seconds < LONGEST_SLEEP_SECONDS:
        raise CallerError(f"a sleep lasts more than 0 seconds and at most a thousand years, not {call.seconds:g}; without a time it lasts until resumed")
    until = call.until if call.until is not None else wall + int(call.seconds * 1e6) if call.seconds is not None else None
    if until is not None and until <= wall:
        raise CallerError("the time to sleep until has passed already; give a later one, or --for a duration")
    if until is not None and until - wall > LONGEST_SLEEP_SECONDS * 1e6:
        raise CallerError("the time to sleep until is more than a thousand years away; without a time it lasts until resumed")
    length = (until - wall) / 1e6 if until is not None else None
    words = call.words or f"snoozed by {called.author}"
    _emit(core, decision, session, ev.SessionSlept(hold=ev.Hold(kind="snoozed", words=words, until=until, length_seconds=length)), called)
    return "sleeps" if session.run is None else "sleeps when the present run has ended"


@judge_call.register
def _(call: calls.Suspend, core: Core, decision: Decision, called: calls.Called) -> str:
    session = _living(core, call.name)
    if session.run is not None:
        return _stop(core, decision, session, "suspend", called, "suspends when the present run has ended")
    if session.wake is not None:
        return _park(core, decision, session, called, "suspended")
    return "suspended already"


@judge_call.register
def _(call: calls.Interrupt, core: Core, decision: Decision, called: calls.Called) -> str:
    session = _living(core, call.name)
    if session.run is not None:
        return _stop(core, decision, session, "interrupt", called, "interrupting")
    if session.wake is not None:
        return _park(core, decision, session, called, "interrupted")
    raise CallerError(f"{call.name} is not running; there is nothing to interrupt")


@judge_call.register
def _(call: calls.Cancel, core: Core, decision: Decision, called: calls.Called) -> str:
    session = _living(core, call.name)
    if session.run is not None:
        return _stop(core, decision, session, "cancel", called, "cancelling")
    # At rest after a failure its readers are held: giving it up sets them free (rule 31).
    if session.wake is not None or session.is_suspect:
        return _park(core, decision, session, called, "cancelled")
    raise CallerError(f"{call.name} is neither running nor queued; there is nothing to cancel")


@judge_call.register
def _(call: calls.Terminate, core: Core, decision: Decision, called: calls.Called) -> str:
    session = core.state.by_name(call.name)
    if session.is_terminated:
        return "terminated already"
    if session.run is not None:
        return _stop(core, decision, session, "terminate", called, "terminates when its run has been stopped")
    _emit(core, decision, session, ev.SessionTerminated(reason=call.reason), called)
    core.detach(decision, session)
    return "terminated"


@judge_call.register
def _(call: calls.Open, core: Core, decision: Decision, called: calls.Called) -> str:
    session = core.state.by_name(call.name)
    if not session.is_terminated:
        return "open already"
    if not call.again:
        raise CallerError(f"{call.name} is terminated; `wakeful open {call.name} --again` reopens it with its history")
    _emit(core, decision, session, ev.SessionReopened(), called)
    return "opened again; its spec is read anew"


@judge_call.register
def _(call: calls.Rename, core: Core, decision: Decision, called: calls.Called) -> str:
    session = _living(core, call.name)
    if not session.is_declared:
        raise CallerError(f"{call.name} is undeclared: its file is gone, so there is nothing to rename; put the file back first")
    if call.new in core.state.ids:
        raise CallerError(f"{call.new} is the name of another session; choose one that is free")
    if session.run is not None:
        raise CallerError(f"{call.name} is running; rename it when it rests")
    _emit(core, decision, session, ev.SessionRenamed(old=call.name, new=call.new), called)
    core.detach(decision, session)
    return f"renamed to {call.new}"


@judge_call.register
def _(call: calls.Send, core: Core, decision: Decision, called: calls.Called) -> str:
    receiver = _living(core, call.name)
    _check_size(core, "message", call.text)
    sender = core.state.by_name(call.sender) if call.sender is not None else None
    chain = (*sender.run.chain, sender.id) if sender is not None and sender.run is not None else ()
    position = receiver.mailbox + 1
    message = ev.MessageAdded(position=position, sender=called.author, text=call.text, wake=call.wake, chain=chain)
    _emit(core, decision, receiver, message, called)
    if sender is not None:
        # Sent and received are one transaction (rule 39).
        core.emit(decision, sender.id, ev.MessageSent(receiver=call.name, position=position, text=call.text), author=called.author)
    return f"message {position} is in the mailbox of {call.name}"


@judge_call.register
def _(call: calls.Note, core: Core, decision: Decision, called: calls.Called) -> str:
    session = _living(core, call.name)
    _check_size(core, "note", call.text)
    _emit(core, decision, session, ev.NoteAdded(text=call.text), called)
    return "noted"


@judge_call.register
def _(call: calls.Remember, core: Core, decision: Decision, called: calls.Called) -> str:
    session = _living(core, call.name)
    if not call.key or len(call.key) > LONGEST_KEY:
        raise CallerError(f"a fact's key has 1 to {LONGEST_KEY} characters")
    _check_size(core, "fact", call.value)
    _emit(core, decision, session, ev.FactSet(key=call.key, value=call.value, rationale=call.rationale), called)
    return f"remembered {call.key}"


@judge_call.register
def _(call: calls.Forget, core: Core, decision: Decision, called: calls.Called) -> str:
    session = _living(core, call.name)
    if call.key not in session.facts:
        raise CallerError(f"{call.name} has no fact {call.key!r}; `wakeful facts {call.name}` lists them")
    _emit(core, decision, session, ev.FactRetracted(key=call.key, rationale=call.rationale), called)
    return f"retracted {call.key}"


def _check_size(core: Core, what: str, text: str) -> None:
    """What people and runs say stays in the state and in every snapshot: it has a bound."""
    size, limit = len(text.encode(errors="surrogatepass")), core.settings.message_limit_bytes
    if size > limit:
        raise CallerError(f"a {what} holds at most {limit} bytes, this one has {size}; name a file instead")


def _stop(core: Core, decision: Decision, session: Session, why: ev.StopWord, called: calls.Called, words: str) -> str:
    """The stronger replaces the weaker (rule 23); the same again changes nothing."""
    run = session.run
    assert run is not None
    if run.stop is not None and STRENGTH[run.stop.why] >= STRENGTH[why]:
        return f"{run.stop.why} was asked for already by {run.stop.by}"
    _emit(core, decision, session, ev.RunStopRequested(run=run.run, why=why), called)
    return words


def _park(core: Core, decision: Decision, session: Session, called: calls.Called, word: str) -> str:
    """A queued wake given up: what it told of, and what it would have seen, counts as seen (rule 19)."""
    if session.wake is None:
        versions = session.seen
    else:
        told = {cause.key: cause.new for cause in session.wake.causes if cause.new is not None}
        versions = told | start_versions(core.state, core.looked, session)
    event = ev.WakeWithdrawn(
        wake=session.wakes, reason=f"{word} by {called.author}", versions=versions, is_cancelled=word == "cancelled"
    )
    _emit(core, decision, session, event, called)
    return f"{word}: its changes count as seen, newer ones wake it"
