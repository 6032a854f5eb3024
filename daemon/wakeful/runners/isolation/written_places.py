"""Knows which places the runs of this daemon may write, so that no run's reach depends on files that runs may write.

Wiring has one `WrittenPlaces` for the daemon, and declares every session's spec to it. `PathAnswers` asks it at each
start, on the loop and in threads that prepare runs. A session without isolation counts with its outputs and
`allow.write`, although its runs can write everything. Later, `list_writable` lists the places in which a run could have
changed a spec, and `could_replace_git` answers whether it could have replaced a repository. In doubt both include a
place, because the only cost is that a person must confirm trust once more.
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
    """A place that runs of a session may write, with links resolved.

    `is_beside`: unless the place is a folder, runs may write all of the folder around it.
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
    """List the places that runs may write, from output patterns and `allow.write` paths.

    `is_staged`: outputs are put in place one by one, so a literal output does not open the folder around it.
    """
    for path in allowed:
        yield WrittenPlace(os.path.realpath(os.path.join(root, path)))
    for text in patterns:
        pattern = parse_under(text, root)
        if pattern.is_literal:
            # The folder around the output is opened, so the name itself stays unresolved, even if it is a link.
            folder, name = os.path.split(pattern.base)
            yield WrittenPlace(os.path.join(os.path.realpath(folder), name), is_beside=not is_staged)
        yield WrittenPlace(os.path.realpath(pattern.base))


def list_written_by(spec: SessionSpec) -> Iterator[WrittenPlace]:
    return list_written(spec.root, spec.written_patterns, spec.confinement.allow_write, is_staged=spec.is_staged)


class WrittenPlaces:
    """The places that runs may write, by path.

    A question takes one lookup per folder of the path, however many sessions there are. `others` is asked if nothing is
    found here.
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
        """Set the places of a session. They replace its earlier ones."""
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
        """Find a session whose runs may write this path, which must contain no link. None if no run may write it."""
        here = real
        while True:
            if (sessions := self._within.get(here)) is not None:
                return Writing(here, next(iter(sessions.values())))
            above = here[: here.rfind("/")] or "/"
            for output, sessions in self._beside.get(above, {}).items():
                # If the output is a folder, runs may write only that folder, and not the one around it.
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
    """List the real folders and files that runs of this spec can write. None stands for everything.

    `is_guarded`: the question is about a place that runs are shielded from, if this machine can shield.
    """
    if not spec.confinement.is_enforced:
        return None
    # A strict run's outputs are staged, and the daemon's places are read-only in its view.
    if is_guarded and (spec.confinement.level == "strict" or can_shield()):
        return ()
    return tuple(dict.fromkeys(map(os.path.realpath, _list_opened(spec))))


def could_replace_git(spec: SessionSpec, top: str, *, was_there: bool) -> bool:
    """Could a run have put a repository of its choice into this checkout?

    `was_there`: the checkout had a repository, and runs were shielded from it.
    False for an unconfined run: it can read every file anyway, and gains nothing by such a trick.
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
    """List the folders in which a run writes directly."""
    folders = [os.path.join(spec.root, path) for path in spec.confinement.allow_write]
    # Under `strict` outputs are staged. In a workspace, a run writes to copies of its root's files.
    if spec.confinement.level == "strict" or spec.is_staged:
        return folders
    for text in spec.written_patterns:
        pattern = parse_under(text, spec.root)
        folders.append(
            os.path.dirname(pattern.base) if pattern.is_literal and not os.path.isdir(pattern.base) else pattern.base
        )
    return folders
