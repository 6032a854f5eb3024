"""Whether, and how, a run is traced: what a person asked for, judged again when it starts.

A trace asks for nothing that the session may not do anyway, unless it is to be observed: then nothing is denied, and
what its isolation kept apart comes together. That takes the operator's leave, and never all three of secrets,
strangers' words and a way out.
"""

from __future__ import annotations

from msgspec.structs import replace

from wakeful.core.deciding.machine import Core
from wakeful.core.deciding.rule_of_two import find_third_leg
from wakeful.core.record.events import TraceWord
from wakeful.core.record.state import Session
from wakeful.core.spec.session import observe_spec


def find_trace(core: Core, session: Session) -> TraceWord | None:
    """How the run that starts now is traced. The leave to observe may have gone since it was asked for."""
    wanted = session.activation.trace
    return "declared" if wanted == "observed" and refuse_observing(core, session) is not None else wanted


def refuse_observing(core: Core, session: Session) -> str | None:
    """Why it may not run with nothing denied, in words with what to do; None: it may."""
    spec = session.spec
    assert spec is not None
    if not core.settings.allow_unisolated:
        return (
            f"observing runs {session.name} without isolation, which is not allowed here; leave --observe out, or "
            "set allow_unisolated: true in wakeful.yaml"
        )
    if any(binding.access == "both" for binding in spec.files):
        return f"{session.name} reads and writes the same files, which takes isolation: strict; leave --observe out"
    if (legs := find_third_leg(core, replace(session, spec=observe_spec(spec)))) is not None:
        return (
            f"{session.name} would have secrets, strangers' words and a way out at once ({legs}); leave --observe out"
        )
    return None
