"""Files that a rewind or a merge writes count as the session's own writing (rule 44): no self-wake, no drift,
readers wake.

The call that is recorded holds its session, so that nothing starts on half of the files; whoever writes them reports
the paths; then its outputs are looked at, and what changed there by these paths alone is recorded as adopted. Nothing
of the hold is logged: after a crash in between the files are somebody's change, which is shown,
and wakes whom it would wake.
"""

from __future__ import annotations

from collections.abc import Iterable

from wakeful.core.deciding.core import Core
from wakeful.core.deciding.decision import Decision
from wakeful.core.deciding.run_end import LONGEST_LAST_LOOK_SECONDS, are_looked_at, dirty_readers
from wakeful.core.looking.observed_state import Writing
from wakeful.core.record import events as ev
from wakeful.core.record.state import Session


def begin_writing(core: Core, decision: Decision, session: Session, words: str, position: int, author: str) -> None:
    """Hold the session from the moment the call is recorded. `position` is that record, `words` say what it is."""
    # An undeclared session starts nothing, and its outputs are not looked at.
    if session.id not in core.looked.bounds:
        return
    known = core.looked.writing.get(session.id)
    before = dict[str, str]()
    for bound in core.looked.bounds[session.id]:
        look = core.looked.target(bound)
        if not bound.is_written or look is None or look.version is None:
            continue
        if known is not None and bound.key in known.before:
            # An earlier call's files are still being looked at.
            before[bound.key] = known.before[bound.key]
        elif look.version == session.marks.seen.get(bound.key, look.version):
            # A version that is not seen was written by others before the call, and stays owed.
            before[bound.key] = look.version
    paths = known.paths if known is not None else frozenset()
    core.looked.writing[session.id] = Writing(words=words, position=position, author=author, before=before, paths=paths)
    decision.touch(session.id)


def end_writing(core: Core, decision: Decision, session_id: str, paths: Iterable[str]) -> None:
    """The files are written, as far as they could be: now the session's outputs are looked at."""
    writing = core.looked.writing.get(session_id)
    # The session was closed or undeclared in the meantime.
    if writing is None:
        return
    writing.paths |= frozenset(paths)
    writing.mono, writing.awaited = decision.moment.mono, {}
    for bound in core.looked.bounds.get(session_id, ()):
        look = core.looked.target(bound)
        if look is not None and bound.is_written:
            look.dirty(decision.moment.mono, urgent=True)
            core.want_look(decision, look)
            writing.awaited[look.target.key] = look.generation
    decision.touch(session_id)


def attend_writing(core: Core, decision: Decision, session: Session) -> bool:
    """Record what was adopted once it was looked at; True when the session is held no longer."""
    writing = core.looked.writing[session.id]
    if writing.awaited is None:
        return False
    deadline = writing.mono + LONGEST_LAST_LOOK_SECONDS
    if not are_looked_at(core, writing.awaited) and decision.moment.mono < deadline:
        core.mono.add(deadline, "writing", session.id)
        return False
    del core.looked.writing[session.id]
    core.mono.drop("writing", session.id)
    decision.touch(session.id)
    versions = _find_own(core, session, writing, writing.awaited)
    if versions:
        adopted = ev.OutputsAdopted(by=writing.words, position=writing.position, versions=versions)
        session = core.emit(decision, session.id, adopted, author=writing.author)
    if session.spec is not None:
        dirty_readers(core, decision, session, session.spec, writing.awaited)
    return True


def _find_own(core: Core, session: Session, writing: Writing, awaited: dict[str, int]) -> dict[str, str]:
    """The outputs that are another version now, by nothing but the paths that were written."""
    versions = {}
    for bound in core.looked.bounds.get(session.id, ()):
        look, before = core.looked.target(bound), writing.before.get(bound.key)
        if look is None or before is None or look.version is None or look.version == before:
            continue
        if look.applied < awaited.get(look.target.key, 0):
            continue
        changed = look.changed_since(before)
        if changed is not None and changed <= writing.paths:
            versions[bound.key] = look.version
    return versions
