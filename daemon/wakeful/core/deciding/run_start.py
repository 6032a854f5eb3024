"""The start of a run: which attempt it is on the same versions (rule 21), and whether it is traced.

Attempts belong to the start versions of inputs: an output that a failed attempt left half written is not newer input.
A traced run is isolated as any run, except an observed run, to which nothing is denied. Observing needs the operator's
permission (`allow_unisolated`), and is refused if it would bring secrets, untrusted text and a way out together.
"""

from __future__ import annotations

from msgspec.structs import replace

from wakeful.core.deciding.core import Core
from wakeful.core.deciding.rule_of_two import find_rule_of_two_breach
from wakeful.core.record.events import TraceWord
from wakeful.core.record.state import Session
from wakeful.core.spec.session import observe_spec


def find_attempt(core: Core, session: Session, versions: dict[str, str]) -> int:
    """Return the number of failed tries on these versions, 0 if they were not tried yet."""
    wake, last = session.wake, session.last_run
    assert wake is not None
    if wake.tried is not None:
        return wake.attempt if _have_same_inputs(core, session, wake.tried, versions) else 0
    # An input was touched while the last try failed for good. That gives one more run (rule 17), without new retries.
    if last is not None and last.failed_on is not None and _have_same_inputs(core, session, last.failed_on, versions):
        return last.attempt
    return 0


def _have_same_inputs(core: Core, session: Session, tried: dict[str, str], versions: dict[str, str]) -> bool:
    if tried == versions:
        return True
    outputs = _list_own_writes(core, session, versions)
    return all(tried.get(key) == versions.get(key) for key in tried.keys() | versions.keys() if key not in outputs)


def _list_own_writes(core: Core, session: Session, versions: dict[str, str]) -> set[str]:
    """List the keys of the session's outputs, except those with a change by others that wakes it."""
    left = session.last_run.written if session.last_run is not None else {}
    own = set()
    for bound in core.looked.bounds.get(session.id, ()):
        is_unchanged = bound.name in left and left[bound.name] == versions.get(bound.key)
        if (bound.is_written and not bound.wake) or ((bound.is_written or bound.is_both) and is_unchanged):
            own.add(bound.key)
    return own


def find_trace(core: Core, session: Session) -> TraceWord | None:
    """Decide how the run that starts now is traced. The permission to observe may have ended since the request."""
    wanted = session.activation.trace
    return "declared" if wanted == "observed" and refuse_observing(core, session) is not None else wanted


def refuse_observing(core: Core, session: Session) -> str | None:
    """Say why the session may not be observed, and what to do. None if it may."""
    spec = session.spec
    assert spec is not None
    if not core.settings.allow_unisolated:
        return (
            f"observing runs {session.name} without isolation, which is not allowed here; leave --observe out, or "
            "set allow_unisolated: true in wakeful.yaml"
        )
    if any(binding.access == "both" for binding in spec.files):
        return f"{session.name} reads and writes the same files, which takes isolation: strict; leave --observe out"
    if (legs := find_rule_of_two_breach(core.untrusted_text, replace(session, spec=observe_spec(spec)))) is not None:
        return (
            f"{session.name} would have secrets, strangers' words and a way out at once ({legs}); leave --observe out"
        )
    return None
