"""Which try of the same versions a start is (rule 21).

Attempts belong to the start versions, and these are what a run reads:
an output that a failed try left half written is not newer input.
"""

from __future__ import annotations

from wakeful.core.deciding.machine import Core
from wakeful.core.record.state import Session


def find_attempt(core: Core, session: Session, versions: dict[str, str]) -> int:
    """0 for versions that were not tried yet; else how many tries on them failed before."""
    wake, last = session.wake, session.last_run
    assert wake is not None
    if wake.tried is not None:
        return wake.attempt if _have_same_inputs(core, session, wake.tried, versions) else 0
    # An input was touched while the last try failed for good: that is one more run (rule 17), and no new row of tries.
    if last is not None and last.failed_on is not None and _have_same_inputs(core, session, last.failed_on, versions):
        return last.attempt
    return 0


def _have_same_inputs(core: Core, session: Session, tried: dict[str, str], versions: dict[str, str]) -> bool:
    if tried == versions:
        return True
    outputs = _list_own_writes(core, session, versions)
    return all(tried.get(key) == versions.get(key) for key in tried.keys() | versions.keys() if key not in outputs)


def _list_own_writes(core: Core, session: Session, versions: dict[str, str]) -> set[str]:
    """Keys of what the session writes, but for a change by others that wakes it."""
    left = session.last_run.written if session.last_run is not None else {}
    own = set()
    for bound in core.looked.bounds.get(session.id, ()):
        is_unchanged = bound.name in left and left[bound.name] == versions.get(bound.key)
        if (bound.is_written and not bound.wake) or ((bound.is_written or bound.is_both) and is_unchanged):
            own.add(bound.key)
    return own
