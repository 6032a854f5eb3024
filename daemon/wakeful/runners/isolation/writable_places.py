"""Whether a run could have changed a place: asked after the fact,
when a spec was found changed that a run may have written.

Asked by wiring for runs that are under way or just ended, and for repositories that took the place of others. Errs to
the side of yes: what it says yes to needs a person's trust.
"""

from __future__ import annotations

import os

from wakeful.core.looking.patterns import contains, parse_under
from wakeful.core.spec.session import SessionSpec
from wakeful.runners.isolation.shield import can_shield
from wakeful.system.git_folders import GIT


def list_writable(spec: SessionSpec, *, is_guarded: bool) -> tuple[str, ...] | None:
    """The real folders and files that runs of this spec can write; None: everything.

    `is_guarded`: a place is meant that runs are shielded from, where this machine can do that."""
    if not spec.confinement.is_enforced:
        return None
    # Strict: its outputs are staged, and what is ours is read-only in its view.
    if is_guarded and (spec.confinement.level == "strict" or can_shield()):
        return ()
    return tuple(dict.fromkeys(map(os.path.realpath, _list_opened(spec))))


def could_replace_git(spec: SessionSpec, top: str, *, was_there: bool) -> bool:
    """Whether a run could have put a repository of its choice into this checkout.

    `was_there`: it had one, from which runs are kept.

    A run that is not confined reads what it likes, and needs no daemon for it."""
    if not spec.confinement.is_enforced:
        return False
    for folder in _list_opened(spec):
        real = os.path.realpath(folder)
        # A run that may write the folder around the checkout can put another folder in its place.
        if contains(real, top) and (real != top or not was_there):
            return True
        if contains(top, real) and GIT in folder.split("/"):
            return True
    return False


def _list_opened(spec: SessionSpec) -> list[str]:
    """The folders in which a run writes directly."""
    folders = [os.path.join(spec.root, path) for path in spec.confinement.allow_write]
    # Under `strict` outputs are staged. In a workspace a run reaches nothing of its root.
    if spec.confinement.level == "strict" or spec.is_staged:
        return folders
    for text in spec.written_patterns:
        pattern = parse_under(text, spec.root)
        folders.append(
            os.path.dirname(pattern.base) if pattern.is_literal and not os.path.isdir(pattern.base) else pattern.base
        )
    return folders


def could_write(spec: SessionSpec, place: str, *, is_guarded: bool) -> bool:
    places = list_writable(spec, is_guarded=is_guarded)
    return places is None or any(contains(one, os.path.realpath(place)) for one in places)
