"""Which places the runs of this daemon may write, and whether a run could have changed a place.

Nothing about a run's reach is concluded from files that runs may write. Wiring keeps one `WrittenPlaces` for the
daemon, and declares every session's spec to it; `Looked` asks it, at each start again, on the loop and in threads that
prepare runs. A session without isolation counts with its outputs and `allow.write`, although its runs can write
everything. Whether a run could have changed a spec, or replaced a repository, is asked after the fact (`could_write`,
`could_replace_git`), and errs to the side of yes: a yes needs a person's trust.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct

from wakeful.core.looking.patterns import contains, parse_under
from wakeful.core.spec.session import SessionSpec
from wakeful.runners.isolation.shield import can_shield
from wakeful.system.git_folders import GIT


class WrittenPlace(Struct, frozen=True):
    """A place that runs of a session may write, links resolved.

    `is_beside`: its neighbours are open with it, unless it is a folder.
    """

    path: str
    is_beside: bool = False


class Writing(Struct, frozen=True):
    """The folder or file through which a path can be written, and the session whose runs may do that."""

    place: str
    session: str


def list_written(
    root: str, patterns: Iterable[str], allowed: Iterable[str], *, is_staged: bool
) -> Iterator[WrittenPlace]:
    """`is_staged`: outputs are put in place one by one, so a literal output opens nothing beside it."""
    for path in allowed:
        yield WrittenPlace(os.path.realpath(os.path.join(root, path)))
    for text in patterns:
        pattern = parse_under(text, root)
        if pattern.is_literal:
            # Its folder is opened, wherever a link of that name leads.
            folder, name = os.path.split(pattern.base)
            yield WrittenPlace(os.path.join(os.path.realpath(folder), name), is_beside=not is_staged)
        yield WrittenPlace(os.path.realpath(pattern.base))


def list_written_by(spec: SessionSpec) -> Iterator[WrittenPlace]:
    return list_written(spec.root, spec.written_patterns, spec.confinement.allow_write, is_staged=spec.is_staged)


class WrittenPlaces:
    """By place.

    A question takes as many lookups as the path has folders, however many sessions there are. `others` are asked next.
    """

    def __init__(self, others: WrittenPlaces | None = None) -> None:
        self._others = others
        # Place -> session id -> the session's name.
        self._within: dict[str, dict[str, str]] = {}
        # Folder -> literal outputs in it -> session id -> the session's name.
        self._beside: dict[str, dict[str, dict[str, str]]] = {}
        self._known: dict[str, tuple[WrittenPlace, ...]] = {}
        self._version = 0

    def declare(self, session_id: str, name: str, places: Iterable[WrittenPlace]) -> None:
        """Take the places of a session in, instead of those it had."""
        known, before = tuple(dict.fromkeys(places)), self._known.get(session_id)
        if known == before:
            return
        for place in before or ():
            self._remove(session_id, place)
        self._known[session_id] = known
        self._version += 1
        for place in known:
            self._within.setdefault(place.path, {})[session_id] = name
            if place.is_beside:
                self._beside.setdefault(os.path.dirname(place.path), {}).setdefault(place.path, {})[session_id] = name

    def knows(self, session_id: str) -> bool:
        return session_id in self._known

    @property
    def version(self) -> tuple[int, ...]:
        """A new value whenever the declared places change."""
        return (self._version,) if self._others is None else (self._version, *self._others.version)

    def find(self, real: str, is_folder: Callable[[str], bool]) -> Writing | None:
        """Find a session whose runs may write this path. The path must contain no link. None: no run may write it."""
        here = real
        while True:
            if (sessions := self._within.get(here)) is not None:
                return Writing(here, next(iter(sessions.values())))
            above = here[: here.rfind("/")] or "/"
            for output, sessions in self._beside.get(above, {}).items():
                # An output that is a folder is opened by itself.
                if not is_folder(output):
                    return Writing(above, next(iter(sessions.values())))
            if above == here:
                return self._others.find(real, is_folder) if self._others is not None else None
            here = above

    def _remove(self, session_id: str, place: WrittenPlace) -> None:
        _drop(self._within, place.path, session_id)
        if place.is_beside and (outputs := self._beside.get(folder := os.path.dirname(place.path))) is not None:
            _drop(outputs, place.path, session_id)
            if not outputs:
                del self._beside[folder]


def _drop(places: dict[str, dict[str, str]], path: str, session_id: str) -> None:
    sessions = places.get(path, {})
    sessions.pop(session_id, None)
    if not sessions:
        places.pop(path, None)


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

    A run that is not confined reads what it likes, and needs no daemon for it.
    """
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
