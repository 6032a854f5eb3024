"""Explains for `why` and `doctor` how the loop guard (rule 34) slows or stops a session, and what to do.

A paced session continues by itself, so its text names the cause and a remedy. A session that sleeps because it is a
loop needs a person.
"""

from __future__ import annotations

from typing import Any

from wakeful.core.deciding.acting_agent import find_acting
from wakeful.core.deciding.core import Core
from wakeful.core.deciding.loop_guard import AGENTS, COMMANDS, find_pause, name_binding
from wakeful.core.deciding.may_start import find_queue_words
from wakeful.core.record.observations import Moment
from wakeful.core.record.state import Session

_PACED = "paced, "


def say_guard(core: Core, session: Session, moment: Moment) -> list[str]:
    """Write sentences about what the guard does to a session now. Empty if it does nothing."""
    hold = session.hold
    if hold is not None and hold.kind == "loop":
        name = session.name
        return [
            (
                f"`wakeful resume {name}` lets it go on. If its run writes what wakes it, bind that with `access: "
                "write`, "
                "or exclude it."
            )
        ]
    queued = find_queue_words(core, session, moment) if session.wake is not None else None
    if queued is None or not queued.startswith(_PACED):
        return []
    pause = find_pause(session)
    if pause is not None:
        bound = name_binding(core, session, (pause.key,))
        return [
            (
                f"wakeful waits to see whether {bound} changes while nothing runs: if it does not, "
                "the run itself changes "
                "what wakes it. Bind what it writes with `access: write`, or exclude it."
            )
        ]
    is_agent = find_acting(core, session)[0] is not None
    limit, kind = (AGENTS, "an agent") if is_agent else (COMMANDS, "a command")
    free = f"Its changes come faster than {kind} may start, which is {limit.starts_a_minute} times a minute."
    return [
        f"{free} Changes collect meanwhile, and the next start sees the newest.",
        "A longer `settle` of the binding, or a `pace` in its spec, makes it calmer.",
    ]


def view_guarded(core: Core, moment: Moment) -> list[dict[str, Any]]:
    """View the sessions that the guard slows down or stopped, for `doctor`."""
    found = []
    for session in sorted(core.state, key=lambda one: one.name):
        if session.wake is None or session.run is not None:
            continue
        is_stopped = session.hold is not None and session.hold.kind == "loop"
        words = (
            session.hold.words if session.hold is not None and is_stopped else find_queue_words(core, session, moment)
        )
        if words is not None and (is_stopped or words.startswith(_PACED)):
            found.append({"session": session.name, "words": words, "is_stopped": is_stopped})
    return found
