"""Whether a run could have changed a place: asked after the fact, when a spec was found changed that a run may have written.

Asked by wiring for runs that are under way or just ended. Errs to the side of yes: what it says yes to needs a person's trust.
"""

from __future__ import annotations

import os

from wakeful.core.match import parse_under
from wakeful.core.spec import SessionSpec
from wakeful.runners.isolation.shield import can_shield


def could_write(spec: SessionSpec, place: str, *, is_guarded: bool) -> bool:
    """`is_guarded`: it is one of the places that runs are shielded from, where this machine can do that."""
    if not spec.confinement.is_enforced:
        return True
    folders = [os.path.join(spec.root, path) for path in spec.confinement.allow_write]
    if spec.confinement.level == "strict":
        # Its outputs are staged, and what is ours is read-only in its view.
        return not is_guarded and _holds(folders, place)
    if is_guarded and can_shield():
        return False
    if spec.is_staged:
        # It works in a workspace: of its root it reaches nothing.
        return _holds(folders, place)
    for text in spec.written_patterns:
        pattern = parse_under(text, spec.root)
        folders.append(os.path.dirname(pattern.base) if pattern.is_literal and not os.path.isdir(pattern.base) else pattern.base)
    return _holds(folders, place)


def _holds(folders: list[str], place: str) -> bool:
    real = os.path.realpath(place)
    return any(f"{real}/".startswith(os.path.join(os.path.realpath(folder), "")) for folder in folders)
