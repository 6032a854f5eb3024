"""Files that a rewind or a merge writes count as the session's own writing (rule 44): they do not wake the session,
are not drift, and wake its readers.

1. The recorded call holds its session, so that no run starts on half of the files.
2. The service that writes the files reports their paths.
3. The session's outputs are looked at. Outputs that changed only by these paths are recorded as adopted.
The hold is not logged. After a crash in between, the files count as a change by others, with the usual wakes.
"""

from __future__ import annotations

from collections.abc import Iterable

from wakeful.core.deciding.decision import Decision
from wakeful.core.deciding.run_end import LONGEST_LAST_LOOK_SECONDS, are_looked_at, dirty_readers
from wakeful.core.deciding.working_state import Core
from wakeful.core.looking.observed_state import Writing
from wakeful.core.record import events as ev
from wakeful.core.record.state import Session


def begin_writing(core: Core, decision: Decision, session: Session, words: str, position: int, author: str) -> None:
    """Hold the session from the moment the call is recorded. `position` is its record; `words` describe the call."""
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
            # The files of an earlier call are still being looked at.
            before[bound.key] = known.before[bound.key]
        elif look.version == session.marks.seen.get(bound.key, look.version):
            # An unseen version was written by others before the call, and stays owed.
            before[bound.key] = look.version
    paths = known.paths if known is not None else frozenset()
    core.looked.writing[session.id] = Writing(words=words, position=position, author=author, before=before, paths=paths)
    decision.touch(session.id)


def end_writing(core: Core, decision: Decision, session_id: str, paths: Iterable[str]) -> None:
    """Start the look at the session's outputs. The service has written the files by now, as far as it could."""
    writing = core.looked.writing.get(session_id)
    # The session was closed or undeclared in the meantime.
    if writing is None:
        return
    writing.paths |= frozenset(paths)
    writing.mono, writing.awaited = decision.moment.mono, {}
    for bound in core.looked.bounds.get(session_id, ()):
        look = core.looked.target(bound)
        if look is not None and bound.is_written:
            look.mark_dirty(decision.moment.mono, urgent=True)
            core.want_look(decision, look)
            writing.awaited[look.target.key] = look.generation
    decision.touch(session_id)


def try_finish_writing(core: Core, decision: Decision, session: Session) -> bool:
    """Record the adopted outputs once they were looked at. True when the session is no longer held."""
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
    """Return the outputs whose version changed, if only the written paths changed in them."""
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
