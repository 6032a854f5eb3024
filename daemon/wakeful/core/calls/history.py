"""Judge the calls on history: checkpoints, rewind, fork, merge, compress, moves, archive, erase (rules 43-45).

As in lifecycle.py, each function returns the reply to the caller, or raises CallerError and records nothing. A call
carries the past records that it needs. They were read from the log before, and the past does not change. If the
session may have gone on meanwhile, the call holds the seq that it was made for.
"""

from __future__ import annotations

import re
from collections import Counter

import msgspec
from msgspec.structs import replace

from wakeful.core.agents.prices import find_meant_model
from wakeful.core.calls import call_types as calls
from wakeful.core.calls.lifecycle import CallRule, check_size, emit_call, find_living, find_resting
from wakeful.core.calls.roles import refuse_damaged
from wakeful.core.deciding.decision import Decision
from wakeful.core.deciding.owed import start_versions
from wakeful.core.deciding.spec_declaration import declare, declare_again, new_id
from wakeful.core.deciding.working_state import Core
from wakeful.core.deciding.written_files import begin_writing
from wakeful.core.record import events as ev
from wakeful.core.record.flat_state import flatten
from wakeful.core.record.knowledge import Conflict, Conversation, Origin, Recollection, merge_facts
from wakeful.core.record.observations import Declaration
from wakeful.core.record.state import ACTIVATION, Archived, Departed, Moving, Session, Terminated, only_advances
from wakeful.core.record.todo import merge_items
from wakeful.core.spec.bindings import FileBinding
from wakeful.core.spec.session import SessionSpec
from wakeful.errors import CallerError
from wakeful.text.display import count

FROM_BUNDLE = "its spec came in a bundle"
# The name of a checkpoint must not look like a seq or a time.
_MARK = re.compile(r"[A-Za-z][\w.-]{0,79}")
# Positions that a fork does not take over: it has no messages, deliveries or activations yet, and its clocks start now
# (rule 43).
_OWN_POSITIONS = ("cron ", "every ", "message", "webhook ", ACTIVATION)


def _judge_save(call: calls.Save, core: Core, decision: Decision, called: calls.Called) -> str:
    session = find_living(core, call.name)
    if not _MARK.fullmatch(call.mark):
        raise CallerError(
            f"{call.mark!r} cannot name a checkpoint; a name begins with a letter and has letters, digits, '.', "
            "'_' or '-'"
        )
    position = session.seq if call.position is None else call.position
    _refuse_outside(session, position)
    known = session.lineage.checkpoints.get(call.mark)
    if known is not None and known.seq == position:
        return f"{call.mark} is seq {position} already"
    if known is not None:
        raise CallerError(f"{call.name} has a checkpoint {call.mark} at seq {known.seq}; choose another name")
    emit_call(core, decision, session, ev.CheckpointMarked(mark=call.mark, position=position, note=call.note), called)
    return f"{call.mark} is seq {position}"


def _refuse_outside(session: Session, seq: int) -> None:
    if not 1 <= seq <= session.seq:
        raise CallerError(
            f"{session.name} has records 1 to {session.seq}, none numbered {seq}; "
            f"`wakeful log {session.name}` shows them"
        )


def _judge_rewind(call: calls.Rewind, core: Core, decision: Decision, called: calls.Called) -> str:
    session = find_resting(core, call.name, "rewind")
    _refuse_outside(session, call.to)
    if call.to == session.seq:
        return f"is at seq {call.to} already"
    if call.at is not None and call.at != session.seq:
        raise CallerError(f"{call.name} went on while the rewind of its files was prepared; ask for it again")
    versions = {key: version for key, version in _versions_now(core, session).items() if not only_advances(key)}
    # Level causes count as seen. Ordered causes are still owed, and request a new wake (rule 44).
    session = _withdraw(core, decision, session, f"rewound by {called.author}")
    session = emit_call(
        core,
        decision,
        session,
        ev.SessionRewound(to=call.to, recollection=call.past, versions=versions, record=call.record),
        called,
    )
    if call.files:
        begin_writing(core, decision, session, f"the rewind to seq {call.to}", session.seq, called.author)
    return f"goes on from seq {call.to}; what came after it stays in the log"


def _withdraw(core: Core, decision: Decision, session: Session, reason: str) -> Session:
    if session.wake is None:
        return session
    return core.emit(decision, session.id, ev.WakeWithdrawn(wake=session.wake.wake, reason=reason))


def _versions_now(core: Core, session: Session) -> dict[str, str]:
    return start_versions(core.state, core.looked, session) if session.id in core.looked.bounds else {}


# -- fork and merge -----------------------------------------------------------------------------


def _judge_fork(call: calls.Fork, core: Core, decision: Decision, called: calls.Called) -> str:
    past = call.past
    known = core.state.find_named(call.new)
    if (
        known is not None
        and known.lineage.origin is not None
        and (known.lineage.origin.session, known.lineage.origin.seq) == (past.id, past.seq)
    ):
        return f"is that fork of {call.name} already"
    if known is not None or call.new in core.looked.refused:
        raise CallerError(f"{call.new} is the name of another session; choose one that is free with --as")
    spec, detached = _spec_of_fork(call, past)
    parent = core.state.sessions.get(past.id)
    needs_trust = call.needs_trust or _find_distrust(past, parent)
    # An untrusted fork does not run yet, so it cannot conflict with other sessions.
    if spec is not None and needs_trust is None and (refused := core.graph.admit([spec], set())):
        raise CallerError(f"a fork of {call.name} cannot be declared: {refused[spec.name]}")
    fork_id = new_id(core, call.new, decision.moment.wall)
    origin = Origin(session=past.id, name=past.name, seq=past.seq, hash=call.origin_hash)
    opened = ev.SessionOpened(
        id=fork_id,
        name=call.new,
        origin=origin,
        recollection=_hand_on(past, is_fresh=call.fresh),
        seen={key: version for key, version in past.marks.seen.items() if not key.startswith(_OWN_POSITIONS)},
        is_first_taken=past.marks.is_first_taken,
        detached=detached,
        workspace=call.workspace,
        needs_trust=needs_trust if spec is not None else None,
    )
    # A closed log accepts no records. The first record of the fork then holds the key of the call.
    is_parent_open = parent is not None and not parent.is_shut
    core.emit(decision, fork_id, opened, author=called.author, key=None if is_parent_open else called.key)
    if spec is not None:
        declare(core, decision, Declaration(spec, past.declaration.text_digest, False), author=called.author)
        core.touch_around(decision, call.new)
    words = f"forked from {past.name} at seq {past.seq}; activate it to let it go on"
    core.emit(decision, fork_id, ev.SessionSlept(hold=ev.Hold(kind="apart", words=words)), author=called.author)
    if parent is not None and is_parent_open:
        forked = ev.SessionForked(fork=fork_id, name=call.new, position=past.seq)
        emit_call(core, decision, parent, forked, called)
    # An activation would be refused while bindings are detached: their outputs need another place first.
    until = (
        f"has its own files for {', '.join(detached)}: fork with --workspace, or write sessions.d/{call.new}.yaml"
        if detached
        else "is activated"
    )
    first = (
        f"is trusted (wakeful trust {call.new}), and then until it "
        if needs_trust is not None and spec is not None
        else ""
    )
    return f"a fork of {call.name} at seq {past.seq}; it sleeps until it {first}{until}"


def _find_distrust(past: Session, parent: Session | None) -> str | None:
    """Say why the spec at a past position of a session does not count here. None if it counts."""
    if parent is None or past.declaration.needs_trust is not None:
        return past.declaration.needs_trust
    if past.seq > parent.declaration.foreign_until or past.spec == parent.spec:
        return parent.declaration.needs_trust
    return FROM_BUNDLE


def _hand_on(past: Session, *, is_fresh: bool) -> Recollection:
    handed = past.recollect()
    # A fork does not take over the conflicts and merges of its parent.
    handed = replace(
        handed, conflicts=(), merges={}, good={k: v for k, v in handed.good.items() if not k.startswith(_OWN_POSITIONS)}
    )
    return (
        replace(handed, memory={}, todo=(), conversation=Conversation(), asker=None, talks={}) if is_fresh else handed
    )


def _spec_of_fork(call: calls.Fork, past: Session) -> tuple[SessionSpec | None, tuple[str, ...]]:
    """Return the spec of a fork, which is the parent's spec of that moment, and the names of its detached bindings.

    Without a workspace of its own the fork must not write, so its write bindings are detached.
    """
    if past.spec is None:
        return None, ()
    if call.spec is not None:
        return replace(call.spec, name=call.new), call.detached
    spec = replace(past.spec, name=call.new)
    if call.root is not None:
        return replace(spec, root=call.root), ()
    kept = tuple(binding for binding in spec.bindings if not _writes(binding))
    return replace(spec, bindings=kept), tuple(binding.name for binding in spec.bindings if _writes(binding))


def _writes(binding: object) -> bool:
    return isinstance(binding, FileBinding) and binding.access != "read"


def _judge_merge(call: calls.Merge, core: Core, decision: Decision, called: calls.Called) -> str:
    session, fork = find_resting(core, call.name, "merge into"), core.state.by_name(call.fork)
    refuse_damaged(fork)
    if not call.is_descended and (fork.lineage.origin is None or fork.lineage.origin.session != session.id):
        parent = f"is a fork of {fork.lineage.origin.name}" if fork.lineage.origin is not None else "is no fork"
        raise CallerError(
            f"{call.fork} {parent}, so it cannot be merged into {call.name}; `wakeful show {call.name}` shows its forks"
        )
    if fork.run is not None:
        raise CallerError(f"{call.fork} is running; merge it when it rests (`wakeful interrupt {call.fork}` stops it)")
    if session.lineage.merges.get(fork.id, 1) != call.base_seq or fork.seq != call.fork_seq:
        raise CallerError(f"{call.fork} or {call.name} went on while the merge was prepared; ask for it again")
    # Programs other than its runs may have changed files in its workspace.
    if fork.seq == session.lineage.merges.get(fork.id) and call.record is None:
        return f"{call.fork} has nothing new since it was merged at its seq {fork.seq}"
    merged = merge_facts(
        call.base,
        session.knowledge.facts,
        fork.knowledge.facts,
        fork=call.fork,
        numbers_from=session.lineage.conflicts_opened + 1,
    )
    event = ev.SessionMerged(
        fork=fork.id,
        name=call.fork,
        fork_seq=fork.seq,
        taken=merged.taken,
        retracted=merged.retracted,
        conflicts=merged.conflicts,
        summary=call.summary,
        files=call.files,
        record=call.record,
        todo=todo
        if (todo := merge_items(call.base_todo, session.knowledge.todo, fork.knowledge.todo)) != session.knowledge.todo
        else None,
    )
    session = emit_call(core, decision, session, event, called)
    if call.record is not None:
        begin_writing(core, decision, session, f"the merge of {call.fork}", session.seq, called.author)
    left = f"; {len(merged.conflicts)} to resolve: `wakeful show {call.name}`" if merged.conflicts else ""
    return (
        f"{call.fork} is merged: {count(len(merged.taken) + len(merged.retracted), 'fact')} "
        f"taken{left}{_say_files(call.files)}"
    )


def _say_files(files: dict[str, str]) -> str:
    """Count the files by result, which is the first word of each text."""
    counts = Counter(words.partition(":")[0] for words in files.values())
    return "".join(f"; {count(number, 'file')} {word}" for word, number in sorted(counts.items()))


def _judge_finish(call: calls.Finish, core: Core, decision: Decision, called: calls.Called) -> str:
    session = find_resting(core, call.name, "finish writing the files of")
    _refuse_outside(session, call.position)
    begin_writing(core, decision, session, call.words, call.position, called.author)
    return f"held while the files of {call.words} are written"


def _judge_resolve(call: calls.Resolve, core: Core, decision: Decision, called: calls.Called) -> str:
    session = find_living(core, call.name)
    conflict = next((one for one in session.lineage.conflicts if one.number == call.number), None)
    if conflict is None:
        known = ", ".join(str(one.number) for one in session.lineage.conflicts) or "none"
        raise CallerError(f"{call.name} has no open conflict {call.number}; open are: {known}")
    if not call.rationale:
        raise CallerError("say why: a conflict is resolved with a reason")
    value = _choose(call, session, conflict)
    check_size(core, "fact", value or "")
    event = ev.ConflictResolved(number=call.number, key=conflict.key, value=value, rationale=call.rationale)
    emit_call(core, decision, session, event, called)
    return f"{conflict.key} = {value}" if value is not None else f"{conflict.key} is forgotten"


def _choose(call: calls.Resolve, session: Session, conflict: Conflict) -> str | None:
    match call.choice:
        case "ours":
            # The present value counts: the fact may have been set again since the merge.
            fact = session.knowledge.facts.get(conflict.key)
            return fact.value if fact is not None else None
        case "theirs":
            return conflict.theirs
        case "value":
            if call.value is None:
                raise CallerError("a value of its own is needed: --value TEXT")
            return call.value


def _judge_compress(call: calls.Compress, core: Core, decision: Decision, called: calls.Called) -> str:
    session = find_living(core, call.name)
    if session.seq != call.at:
        raise CallerError(f"{call.name} went on while the summary was made; ask for it again")
    before, after = session.knowledge.conversation.size_bytes, call.kept_bytes + len(call.summary.encode())
    # A summary that is not shorter than the text it replaces would be summarised again and again.
    if call.messages == 0 or after >= before + len((session.knowledge.conversation.summary or "").encode()):
        raise CallerError(
            f"the conversation of {call.name} is as short as it gets: "
            f"{count(session.knowledge.conversation.messages, 'message')}"
        )
    event = ev.ConversationCompressed(
        replaced=call.replaced,
        kept=call.kept,
        summary=call.summary,
        messages=call.messages,
        kept_messages=call.kept_messages,
        kept_bytes=call.kept_bytes,
        by=call.by,
    )
    emit_call(core, decision, session, event, called)
    return f"{count(call.messages, 'message')} summarised; the log keeps them"


# -- moves --------------------------------------------------------------------------------------


def _judge_migrate(call: calls.Migrate, core: Core, decision: Decision, called: calls.Called) -> str:
    session = find_resting(core, call.name, "migrate")
    if (call.agent, call.model) == (session.declaration.agent, session.declaration.model):
        return "this agent and model are set already"
    event = ev.SessionMigrated(
        agent=call.agent, model=call.model, old_agent=session.declaration.agent, old_model=session.declaration.model
    )
    emit_call(core, decision, session, event, called)
    chosen = [f"{what} {name}" for what, name in (("agent", call.agent), ("model", call.model)) if name]
    meant = find_meant_model(core.settings.prices, call.model) if call.model is not None else None
    return f"{' and '.join(chosen) or 'the agent and model of its spec'} from the next run on" + (
        f"; {call.model} is not in the list of models: did you mean {meant}?" if meant else ""
    )


def _judge_freeze(call: calls.Freeze, core: Core, decision: Decision, called: calls.Called) -> str:
    session = find_resting(core, call.name, "move")
    # Seen moves with the session, so whatever is owed is owed on the other host (rule 45).
    session = _withdraw(core, decision, session, f"moves to {call.to}")
    emit_call(core, decision, session, ev.SessionFrozen(move=call.move, to=call.to), called)
    core.detach(decision, session)
    return "frozen until its receipt comes"


def _judge_thaw(call: calls.Thaw, core: Core, decision: Decision, called: calls.Called) -> str:
    session = core.state.by_name(call.name)
    match session.closed:
        case Moving(move=move):
            session = emit_call(core, decision, session, ev.SessionThawed(move=move, reason=call.reason), called)
        case Departed(move=str()):
            raise CallerError(f"{call.name} was moved: its receipt came; fork it to go on from its log here")
        case Departed() | Terminated() | Archived() | None:
            return "not frozen: nothing to give up"
    declare_again(core, decision, session)
    return "stays here; the bundle that was cut must not be loaded"


def _judge_depart(call: calls.Depart, core: Core, decision: Decision, called: calls.Called) -> str:
    session = core.state.by_name(call.name)
    match session.closed:
        case Departed(move=move) | Archived(before=Departed(move=move)) if call.move in (move, session.move.arrived_by):
            return "its receipt came already"
        case Moving(move=str() as move) | Departed(move=str() as move):
            if move != call.move:
                raise CallerError(f"this receipt is for another move of {call.name}; it moves with {move[:8]}")
        case _:
            raise CallerError(f"{call.name} is not moving; there is no receipt to take")
    if call.past is None:
        emit_call(core, decision, session, ev.SessionDeparted(move=call.move, receipt=call.receipt), called)
    else:
        core.state.put(call.past)
    return "moved to the other host; its log stays here"


def _judge_arrive(call: calls.Arrive, core: Core, decision: Decision, called: calls.Called) -> str:
    past = call.past
    known = core.state.sessions.get(past.id)
    if known is not None and not isinstance(known.closed, Moving | Departed):
        return "it arrived already"
    if not isinstance(past.closed, Moving | Departed) or past.closed.move != call.move:
        raise CallerError(f"{past.name} was not frozen for this move; load it without --move to make a fork")
    # A session that left this host and returns with the same spec needs no new trust: that spec was in force here.
    own = core.state.sessions.get(past.id)
    is_own = past.spec is None or (own is not None and own.spec == past.spec and own.declaration.needs_trust is None)
    put_aside = _put_namesake_aside(core, decision, past, called)
    core.state.put(past)
    arrived = ev.SessionArrived(
        move=call.move,
        origin=call.origin,
        store=call.store,
        is_foreign=True,
        needs_trust=None if is_own else FROM_BUNDLE,
    )
    session = core.emit(decision, past.id, arrived, author=called.author, key=called.key)
    declare_again(core, decision, session)
    first = "" if is_own else f"is trusted (wakeful trust {past.name}), and then until it "
    return f"moved to this host; it sleeps until it {first}is activated{put_aside}"


def _put_namesake_aside(core: Core, decision: Decision, past: Session, called: calls.Called) -> str:
    """Rename and close another session that has the name of the arriving session.

    It exists if the file that declares the session was on this host before the session itself.
    """
    other_id = core.state.ids.get(past.name, past.id)
    if other_id == past.id:
        return ""
    other = core.state.get(other_id)
    if other.run is not None:
        raise CallerError(
            f"{past.name} is the name of another session here, which is running; load it when that one rests (`wakeful "
            f"interrupt {past.name}` stops it)"
        )
    taken = core.state.ids
    new = next(
        name
        for number in range(1, len(taken) + 2)
        if (name := f"{past.name}-before{number if number > 1 else ''}") not in taken
    )
    other = core.emit(decision, other_id, ev.SessionRenamed(old=past.name, new=new), author=called.author)
    core.looked.writing.pop(other_id, None)
    core.detach(decision, replace(other, name=past.name))
    if not other.is_shut:
        reason = f"{past.name} came here from another host, and has its name"
        core.emit(decision, other_id, ev.SessionTerminated(reason=reason), author=called.author)
    return f"; the session that had its name here is {new} now, and closed: `wakeful show {new}`"


def _judge_archive(call: calls.Archive, core: Core, decision: Decision, called: calls.Called) -> str:
    session = core.state.by_name(call.name)
    match session.closed:
        case Archived():
            return "archived already"
        case Moving():
            raise CallerError(f"{call.name} is frozen for a move; archive it when its receipt came")
        case Departed() | Terminated() | None:
            pass
    if session.run is not None or session.wake is not None or session.lineage.conflicts:
        raise CallerError(f"{call.name} is not at rest: it runs, is owed a run or has open conflicts")
    if session.seq != call.at:
        raise CallerError(f"{call.name} went on while its bundle was cut; ask for it again")
    event = ev.SessionArchived(bundle=call.bundle, digest=call.digest, state=msgspec.to_builtins(flatten(session)))
    emit_call(core, decision, session, event, called)
    core.detach(decision, session)
    return f"archived; `wakeful load {call.name}` brings it back"


def _judge_restore(call: calls.Restore, core: Core, decision: Decision, called: calls.Called) -> str:
    session = core.state.by_name(call.name)
    if not isinstance(session.closed, Archived):
        return "not archived: nothing to bring back"
    session = emit_call(core, decision, session, ev.SessionRestored(bundle=session.closed.bundle), called)
    declare_again(core, decision, session)
    return "is back"


def _judge_erase(call: calls.Erase, core: Core, decision: Decision, called: calls.Called) -> str:
    session = core.state.by_name(call.name)
    # The log of a terminated session may still hold a secret. An archived log is not here.
    if not isinstance(session.closed, Terminated):
        session = find_resting(core, call.name, "erase from")
    _refuse_outside(session, call.seq)
    if not call.is_recorded:
        event = ev.PayloadErased(erased=call.seq, kind=call.kind, stand_in=call.stand_in, reason=call.reason)
        emit_call(core, decision, session, event, called)
    return f"the payload of record {call.seq} is gone; its hash stays in the chain"


HISTORY_CALLS: dict[type[calls.Call], CallRule] = {
    calls.Save: CallRule(_judge_save, ("checkpoint_marked",)),
    # If a wake was open, it is withdrawn first.
    calls.Rewind: CallRule(_judge_rewind, ("session_rewound", "wake_withdrawn"), role="maintainer"),
    calls.Fork: CallRule(_judge_fork, ("session_forked", "session_opened")),
    calls.Merge: CallRule(_judge_merge, ("session_merged",), role="maintainer"),
    calls.Finish: CallRule(_judge_finish, role="maintainer"),
    calls.Resolve: CallRule(_judge_resolve, ("conflict_resolved",)),
    calls.Compress: CallRule(_judge_compress, ("conversation_compressed",)),
    calls.Migrate: CallRule(_judge_migrate, ("session_migrated",), role="maintainer"),
    calls.Freeze: CallRule(_judge_freeze, role="maintainer"),
    calls.Thaw: CallRule(_judge_thaw, ("session_thawed",), role="maintainer"),
    calls.Depart: CallRule(_judge_depart, ("session_departed",), role="maintainer"),
    calls.Arrive: CallRule(_judge_arrive),
    calls.Archive: CallRule(_judge_archive, role="maintainer"),
    calls.Restore: CallRule(_judge_restore, role="maintainer"),
    calls.Erase: CallRule(_judge_erase, ("payload_erased",), role="maintainer"),
}
