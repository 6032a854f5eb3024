"""Words for the records that the daemon's narration passes over: what `log` and `history` print of them.

Narration tells what a person waits for; a log leaves nothing out, and has a line of words for every kind. Nothing is
escaped here: who prints, escapes.
"""

from __future__ import annotations

import re

from wakeful.core import events as ev


def tell(event: ev.Event) -> str:
    match event:
        case ev.SessionOpened(id=session_id, name=name):
            return f"opened as {name}, with the id {session_id}"
        case ev.SessionRenamed(old=old, new=new):
            return f"renamed from {old} to {new}"
        case ev.SessionReopened(reason=reason):
            return "opened again" + (f": {reason}" if reason else "")
        case ev.SessionAdopted(versions=versions):
            return f"takes what is there as seen, without a run: {len(versions)} version{'' if len(versions) == 1 else 's'}"
        case ev.ActivationRequested(note=note, fresh=is_fresh):
            return "activation requested" + (", fresh" if is_fresh else "") + (f": {note}" if note else "")
        case ev.MessageSent(receiver=receiver, position=position, text=text):
            return f"message {position} sent to {receiver}: {text}"
        case ev.FactRetracted(key=key, rationale=rationale):
            return f"forgets {key}" + (f": {rationale}" if rationale else "")
        case ev.ClockRebased(binding=binding, old=old, new=new):
            return f"{binding} counts from {new} on, no longer from {old}"
        case _:
            # Narrated elsewhere, or of a newer release: its kind, in words.
            return re.sub(r"(?<!^)(?=[A-Z])", " ", type(event).__name__).lower()
