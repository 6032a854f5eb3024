"""The bound files: decides which paths an agent's tools may read and write, and opens them.

The kernel already confines the process to its session's bindings. The rules here are finer: they check the pattern and
not just its folder, and they respect excludes. They also explain a refusal to the model, which then corrects its call.
A path is resolved first, then its target is checked, then it is opened without following links. So the opened file is
the checked file.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import heapq
import os
import stat
from collections.abc import Iterable, Iterator
from time import monotonic
from typing import Literal

from msgspec import Struct

from wakeful.core.looking.patterns import Excludes, Pattern, contains, parse_under
from wakeful.core.spec.session import DEFAULT_EXCLUDES
from wakeful.errors import CallerError
from wakeful.system.openat2 import open_without_links

Access = Literal["read", "write"]

# The most entries visited in one walk. A larger walk is stopped, and needs a narrower pattern.
MOST_VISITED = 200_000
MOST_SECONDS = 10.0
_MOST_TOLD = 12
_LONGEST_PATH = 4_096


class Refused(CallerError):
    """A call cannot be carried out. The message is for the model, which can correct the call."""


class Place(Struct, frozen=True):
    """The paths of one binding, as the spec has them: a pattern under root, and its excludes."""

    pattern: str
    exclude: tuple[str, ...] = ()


class Bound(Struct, frozen=True):
    """A `Place` in parsed form."""

    pattern: Pattern
    excludes: Excludes
    # The offset behind the pattern's literal part. Excludes by a bare name apply only after it, because a folder that
    # the pattern names is wanted.
    start: int

    @classmethod
    def build(cls, place: Place, root: str) -> Bound:
        pattern = parse_under(place.pattern, root)
        return cls(
            pattern, Excludes.build(root, DEFAULT_EXCLUDES, place.exclude), len(pattern.literal_prefix.rstrip("/")) + 1
        )

    def covers(self, path: str) -> bool:
        return self.pattern.matches(path) and self.excludes.covers(path, self.start) is None

    def find_exclude(self, path: str) -> str | None:
        """Return the exclude that leaves this path out although the pattern matches it, or None."""
        return self.excludes.covers(path, self.start) if self.pattern.matches(path) else None

    def enters(self, folder: str) -> bool:
        return self.pattern.enters(folder) and (
            len(folder) < self.start or not self.excludes.prunes(folder, self.start)
        )


class Found(Struct, frozen=True, order=True):
    """A file of a walk. `path` is absolute, and links in it are not resolved."""

    path: str
    size_bytes: int


class Walk(Struct):
    """The files found. `is_whole` is False if the walk was stopped early."""

    files: list[Found]
    is_whole: bool = True


class Bounds(Struct, frozen=True):
    """All bound paths. A path that may be written may also be read. The whole scratch folder may be written."""

    root: str
    reads: tuple[Bound, ...] = ()
    writes: tuple[Bound, ...] = ()
    scratch: str | None = None

    @classmethod
    def build(
        cls,
        root: str,
        reads: Iterable[Place | str] = (),
        writes: Iterable[Place | str] = (),
        scratch: str | None = None,
    ) -> Bounds:
        def ready(places: Iterable[Place | str]) -> tuple[Bound, ...]:
            return tuple(Bound.build(Place(place) if isinstance(place, str) else place, root) for place in places)

        own = () if scratch is None else (Bound(Pattern.literal(scratch), Excludes((), (), ()), len(scratch) + 1),)
        return cls(os.path.normpath(root), ready(reads), (*ready(writes), *own), scratch)

    def may(self, access: Access, path: str) -> bool:
        """Is this path bound for this access? Checks only the text of an absolute, normalized path."""
        return any(bound.covers(path) for bound in self._of(access))

    def name(self, path: str) -> str:
        """Return the path as the model sees it: relative to the root if it lies below it."""
        return path[len(self.root.rstrip("/")) + 1 :] or "." if contains(self.root, path) else path

    def describe(self) -> str:
        """List all bound patterns in one line."""
        words = [f"{bound.pattern.text} (read)" for bound in self.reads]
        words += [f"{bound.pattern.text} (write)" for bound in self.writes if bound.pattern.base != self.scratch]
        cut = [f"and {len(words) - _MOST_TOLD} more"] if len(words) > _MOST_TOLD else []
        scratch = [f"your scratch folder {self.scratch} (write)"] if self.scratch is not None else []
        return ", ".join([*words[:_MOST_TOLD], *cut, *scratch]) or "nothing"

    def place(self, text: str, access: Access) -> str:
        """Return the absolute path for a model's `text`. Raises Refused, with the bound paths, if it is not bound."""
        if not text or "\0" in text or len(text) > _LONGEST_PATH:
            raise Refused(f"{text[:80]!r} is not a path; give one relative to {self.root}, such as docs/api.md")
        if text.startswith("~"):
            raise Refused(f"{text!r}: there is no home folder here; give a path relative to {self.root}")
        path = os.path.normpath(os.path.join(self.root, text))
        # POSIX allows a path with two leading slashes to have another meaning. A model means a single slash.
        path = "/" + path.lstrip("/")
        if not self.may(access, path):
            raise Refused(self._say_unbound(path, access))
        return path

    def resolve(self, path: str, access: Access) -> str:
        """Resolve the links in a bound path. Raises Refused if they lead to a path that is not bound."""
        real = os.path.realpath(path)
        if real == path:
            return real
        names = [
            alias.rstrip("/") + real[len(place.rstrip("/")) :]
            for alias, place in self._list_aliases()
            if contains(place, real)
        ]
        if not any(self.may(access, name) for name in names or [real]):
            leads = self.name((names or [real])[0])
            raise Refused(
                f"{self.name(path)} is, or is below, a symbolic link that leads to {leads}, "
                f"which is not bound for {_say(access)}"
            )
        return real

    def _list_aliases(self) -> Iterator[tuple[str, str]]:
        """Yield the root, the scratch folder and bound folders outside of the root, each with its resolved path.

        These may themselves be links. Links within the root are not included, because a run may have made them.
        """
        yield self.root, os.path.realpath(self.root)
        if self.scratch is not None:
            yield self.scratch, os.path.realpath(self.scratch)
        for bound in (*self.reads, *self.writes):
            if not contains(self.root, bound.pattern.base):
                yield bound.pattern.base, os.path.realpath(bound.pattern.base)

    def walk(self, under: str | None = None) -> Walk:
        """Find all files that may be read, sorted, without duplicates. `under` is a path or pattern. Blocking."""
        wanted = parse_under(under, self.root) if under else None
        walker = _Walker(self, wanted)
        places = {bound.pattern.base for bound in self._of("read") if bound.pattern.base != self.scratch}
        if wanted is not None and self.scratch is not None and contains(self.scratch, wanted.base):
            places.add(self.scratch)
        # Skip folders within another one, which are visited with it.
        for base in sorted(
            place for place in places if not any(other != place and contains(other, place) for other in places)
        ):
            walker.visit(base)
        return Walk(sorted(walker.found.values()), walker.is_whole)

    def suggest(self, text: str) -> list[str]:
        """Suggest bound files that the model may have meant. Blocking."""
        names = [self.name(found.path) for found in self.walk().files[:5_000]]
        same_name = [name for name in names if os.path.basename(name) == os.path.basename(text)]
        return list(dict.fromkeys([*same_name[:3], *difflib.get_close_matches(text, names, 3, 0.6)]))[:3]

    def _of(self, access: Access) -> tuple[Bound, ...]:
        return self.writes if access == "write" else (*self.reads, *self.writes)

    def _say_unbound(self, path: str, access: Access) -> str:
        name = self.name(path)
        excluded = next((words for bound in self._of(access) if (words := bound.find_exclude(path)) is not None), None)
        if excluded is not None:
            return f"{name} is not bound, because the exclude {excluded!r} matches it"
        if access == "write" and self.may("read", path):
            return f"{name} is bound for reading only; bound files: {self.describe()}"
        near = self.suggest(name) if access == "read" else []
        return f"{name} is not bound for {_say(access)}; bound files: {self.describe()}" + (
            f"; did you mean {' or '.join(near)}?" if near else ""
        )


class _Walker:
    """Walks only folders that can have matching files. Does not follow links to folders. Stops after a limit."""

    def __init__(self, bounds: Bounds, wanted: Pattern | None) -> None:
        self.found: dict[str, Found] = {}
        self.is_whole = True
        self._bounds = bounds
        self._wanted = wanted
        self._left = MOST_VISITED
        self._deadline = monotonic() + MOST_SECONDS

    def visit(self, base: str) -> None:
        try:
            entry = os.lstat(base)
        except OSError:
            return
        if not stat.S_ISDIR(entry.st_mode):
            if self._means(base):
                self._take(base, entry)
            return
        pending = [base]
        while pending and self.is_whole:
            folder = heapq.heappop(pending)
            for inner in self._list(folder):
                heapq.heappush(pending, inner)

    def _list(self, folder: str) -> Iterator[str]:
        # A folder that cannot be listed is skipped. The user who bound it cannot read it either.
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                self._left -= 1
                if self._left <= 0 or monotonic() > self._deadline:
                    self.is_whole = False
                    return
                if entry.is_dir(follow_symlinks=False):
                    if self._enters(entry.path):
                        yield entry.path
                elif self._means(entry.path):
                    self._take(entry.path, entry.stat(follow_symlinks=False))

    def _enters(self, folder: str) -> bool:
        if self._wanted is not None and not self._wanted.enters(folder):
            return False
        return any(bound.enters(folder) for bound in (*self._bounds.reads, *self._bounds.writes))

    def _means(self, path: str) -> bool:
        return (self._wanted is None or self._wanted.matches(path)) and self._bounds.may("read", path)

    def _take(self, path: str, entry: os.stat_result) -> None:
        if stat.S_ISLNK(entry.st_mode):
            try:
                entry = os.lstat(self._bounds.resolve(path, "read"))
            except (OSError, Refused):
                return
        if stat.S_ISREG(entry.st_mode):
            self.found[path] = Found(path, entry.st_size)


def open_bound(bounds: Bounds, path: str, access: Access, flags: int) -> int:
    """Open a path that `place` returned. Raises Refused if it is not a regular file. Blocking."""
    real = bounds.resolve(path, access)
    try:
        # O_NONBLOCK, because opening a pipe without a writer would block for ever.
        fd = open_without_links(real, flags | os.O_NONBLOCK)
    except IsADirectoryError:
        raise Refused(_say_folder(bounds, path)) from None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EXDEV):
            raise Refused(
                f"{bounds.name(path)} was changed while it was opened: its path has a symbolic link now"
            ) from None
        raise
    mode = os.fstat(fd).st_mode
    if stat.S_ISREG(mode):
        return fd
    os.close(fd)
    raise Refused(
        _say_folder(bounds, path)
        if stat.S_ISDIR(mode)
        else f"{bounds.name(path)} is a device, pipe or socket, not a file"
    )


def _say_folder(bounds: Bounds, path: str) -> str:
    return f"{bounds.name(path)} is a folder; list shows what is in it"


def _say(access: Access) -> str:
    return "writing" if access == "write" else "reading"
