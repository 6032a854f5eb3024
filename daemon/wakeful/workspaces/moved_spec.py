"""Moves a parent's spec to its fork's root: paths inside root move along, paths outside stay.

Pure. A binding that reads outside of root continues to read there. A binding that writes outside would overwrite the
parent's files, so it is detached, and reported by its name.
"""

from __future__ import annotations

import os
from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from wakeful.core.looking.patterns import contains, parse_under
from wakeful.core.record.state import Session
from wakeful.core.spec.bindings import (
    AnyBinding,
    CommitsBinding,
    CronBinding,
    EveryBinding,
    FileBinding,
    MessageBinding,
    ProbeBinding,
    ServiceBinding,
    SessionBinding,
    WebhookBinding,
)
from wakeful.core.spec.session import SessionSpec
from wakeful.run_files.replay_folder import make_path_replacer, redirect


class MovedSpec(Struct, frozen=True, kw_only=True):
    """A moved spec.

    `detached` names the write bindings that were left behind. `identities` maps the old identity of each binding to the
    new one (rule 8).
    """

    spec: SessionSpec
    detached: tuple[str, ...]
    identities: dict[str, str]


def move_spec(spec: SessionSpec, root: str) -> MovedSpec:
    kept, detached, identities = [], [], {}
    for binding in spec.bindings:
        moved = _move(binding, spec.root, root)
        if moved is None:
            detached.append(binding.name)
            continue
        kept.append(moved)
        identities[binding.identity] = moved.identity
    led = redirect(spec, root, None) if spec.run is not None else replace(spec, root=root)
    if led.run is not None and led.run.cwd is not None:
        led = replace(led, run=replace(led.run, cwd=make_path_replacer(spec.root, root)(led.run.cwd)))
    return MovedSpec(spec=replace(led, bindings=tuple(kept)), detached=tuple(detached), identities=identities)


def move_marks(past: Session, identities: dict[str, str]) -> Session:
    """Return the session with its versions under the new identities of its bindings.

    The versions stay valid, because the content is the same.
    """

    def carry(marks: dict[str, str]) -> dict[str, str]:
        return {identities.get(key, key): version for key, version in marks.items()}

    return replace(past, marks=replace(past.marks, seen=carry(past.marks.seen), good=carry(past.marks.good)))


def is_written(binding: FileBinding) -> bool:
    return binding.access != "read"


def _move(binding: AnyBinding, old: str, new: str) -> AnyBinding | None:
    match binding:
        case FileBinding() if contains(old, parse_under(binding.pattern, old).base):
            return replace(
                binding, pattern=_cut(binding.pattern, old), exclude=tuple(_cut(text, old) for text in binding.exclude)
            )
        case FileBinding() if is_written(binding):
            return None
        case FileBinding():
            # A bare name in an exclude counts in any folder.
            exclude = tuple(_join(old, text) if "/" in text.rstrip("/") else text for text in binding.exclude)
            return replace(binding, pattern=_join(old, binding.pattern), exclude=exclude)
        case CommitsBinding() if binding.repo is not None:
            return replace(binding, repo=_join(old, binding.repo))
        case ProbeBinding():
            lead = make_path_replacer(old, new)
            return replace(binding, argv=tuple(lead(word) for word in binding.argv))
        case (
            CommitsBinding()
            | CronBinding()
            | EveryBinding()
            | MessageBinding()
            | SessionBinding()
            | ServiceBinding()
            | WebhookBinding()
        ):
            return binding
        case _:
            assert_never(binding)


def _cut(text: str, root: str) -> str:
    """Make a path relative to root. Most paths are relative already."""
    return (
        text.removeprefix(f"{root.rstrip('/')}/")
        if text.startswith("/") and text != root
        else "**"
        if text == root
        else text
    )


def _join(root: str, text: str) -> str:
    """Make a path absolute. A final slash, which marks a folder, is kept."""
    return os.path.normpath(os.path.join(root, text)) + ("/" if text.endswith("/") else "")
