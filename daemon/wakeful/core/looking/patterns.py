"""Patterns over paths: which paths a binding matches, which two bindings can meet, which bindings match a path.

Pure text, no file system. `**` crosses folders; `*`, `?` and `[...]` stay inside one name. A trailing `/` matches
everything below a folder. A pattern without wildcards matches that path and, if it is a folder, everything below it.
Called by specs/ (validation), the recompute graph (`intersects`, `PathTrie.meeting`) and the file source
(`PathTrie.find`, `Excludes`).
"""

from __future__ import annotations

import functools
import itertools
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

from msgspec import Struct
from msgspec.structs import force_setattr

from wakeful.errors import SpecError

T = TypeVar("T")

# The token for zero or more whole folders. It is the only token that crosses a `/`.
CROSS = "**"
# The tail of a pattern without wildcards: the path itself, or anything below it.
ITSELF_AND_BELOW = (CROSS,)
EVERYTHING_BELOW = (CROSS, "*")


class PatternError(SpecError):
    """A pattern that cannot match any path."""


class Pattern(Struct, frozen=True):
    """`prefix` are the literal names before the first wildcard, `tail` the rest, beginning with a wildcard.

    A relative pattern may begin with `..`; `under` makes it absolute. Two spellings of one pattern (`a//b`, `./a/b`)
    differ only in their `text`.
    """

    text: str
    prefix: tuple[str, ...]
    tail: tuple[str, ...]
    is_absolute: bool
    # The literal part as a path: the path itself for a literal, else the folder that a walk begins in. Stored, because
    # every match needs it.
    base: str = ""

    def __post_init__(self) -> None:
        force_setattr(self, "base", ("/" if self.is_absolute else "") + "/".join(self.prefix))

    @classmethod
    def parse(cls, text: str) -> Pattern:
        if not text or "\0" in text:
            raise PatternError(f"{text!r} is not a path pattern: expected a path such as data/*.csv")
        names = [name for name in text.split("/") if name not in ("", ".")]
        is_folder = text.endswith(("/", "/.")) or not names
        prefix: list[str] = []
        for index, name in enumerate(names):
            if _has_wildcard(name):
                tail = _tidy_tail(text, names[index:], is_folder)
                break
            _append_name(prefix, name, text.startswith("/"))
        else:
            tail = EVERYTHING_BELOW if is_folder else ITSELF_AND_BELOW
        return cls(text, tuple(prefix), tail, text.startswith("/"))

    @classmethod
    def literal(cls, path: str) -> Pattern:
        """Make a pattern for exactly this absolute path and all below it. Wildcards in the path have no meaning."""
        return cls(path, tuple(name for name in path.split("/") if name), ITSELF_AND_BELOW, path.startswith("/"))

    def under(self, root: str) -> Pattern:
        """Return the pattern made absolute. A `[` in the name of root is an ordinary character."""
        if self.is_absolute:
            return self
        prefix = [sys.intern(name) for name in root.split("/") if name]
        for name in self.prefix:
            _append_name(prefix, name, True)
        return Pattern(self.text, tuple(prefix), self.tail, True)

    @property
    def is_literal(self) -> bool:
        return self.tail == ITSELF_AND_BELOW

    @property
    def literal_prefix(self) -> str:
        """Return the folders before the first wildcard. The last name of a literal is left out: it may be a file."""
        names = self.prefix[:-1] if self.is_literal else self.prefix
        return ("/" if self.is_absolute else "") + "/".join(names)

    def below_base(self) -> re.Pattern[str]:
        """Return the regex for the part of a path after `base` and its slash, for a caller that tests many paths."""
        return _compile_tail(EVERYTHING_BELOW if self.is_literal else self.tail)

    def matches(self, path: str) -> bool:
        """Does this pattern match `path`? Both are relative to the same root, or both are absolute."""
        base = self.base
        if self.is_literal:
            return path.startswith(base) and (len(path) == len(base) or path[len(base)] == "/")
        if not self.prefix:
            return _compile_tail(self.tail).fullmatch(path, 1 if self.is_absolute else 0) is not None
        return path.startswith(f"{base}/") and _compile_tail(self.tail).fullmatch(path, len(base) + 1) is not None

    def enters(self, folder: str) -> bool:
        """Can a path below `folder` match? A pruned walk asks this before it descends."""
        base = self.base
        if folder == base or base.startswith("/" if folder == "/" else f"{folder}/"):
            return True
        start = len(base) + 1 if self.prefix else (1 if self.is_absolute else 0)
        if self.prefix and not folder.startswith(f"{base}/"):
            return False
        if self.is_literal:
            return True
        return _compile_entry(self.tail).fullmatch(folder, start) is not None


@functools.lru_cache(maxsize=65536)
def parse_under(text: str, root: str) -> Pattern:
    """Return the absolute pattern of a binding. Cached, so that the graph and the file source share one object."""
    return Pattern.parse(text).under(root)


def _append_name(prefix: list[str], name: str, is_absolute: bool) -> None:
    if name != "..":
        # Interned, because ten thousand patterns share most of their folders' names.
        prefix.append(sys.intern(name))
    elif prefix and prefix[-1] != "..":
        prefix.pop()
    elif not is_absolute:
        prefix.append(name)


def _tidy_tail(text: str, names: list[str], is_folder: bool) -> tuple[str, ...]:
    """Collapse `**/**`, read `a**b` as `a*b`, and let a pattern that ends in `**` or `/` match everything below."""
    tail: list[str] = []
    for name in names:
        if name == "..":
            raise PatternError(
                f"pattern {text!r}: '..' after a wildcard has no fixed meaning; write the folder it leads to"
            )
        if name != CROSS:
            name = re.sub(r"\*\*+", "*", name)
            _check_name(name, text)
        if name != CROSS or not tail or tail[-1] != CROSS:
            tail.append(name)
    if is_folder and tail[-1] != CROSS:
        tail.append(CROSS)
    if tail[-1] == CROSS:
        tail.append("*")
    return tuple(tail)


def _has_wildcard(name: str) -> bool:
    return "*" in name or "?" in name or _find_class_end(name, name.find("[")) > 0


def _find_class_end(name: str, start: int) -> int:
    """Return the index of the `]` that closes the `[` at start. -1 if there is none: then `[` is ordinary."""
    if start < 0:
        return -1
    first = start + 1 + (name[start + 1 : start + 2] == "!")
    # As in the shell, a `]` in the first place is a member of the class.
    return name.find("]", first + 1)


def _split_name(name: str) -> list[str]:
    """Cut one name into atoms: `*`, `?`, a whole class `[...]`, or one literal character."""
    atoms: list[str] = []
    index = 0
    while index < len(name):
        end = _find_class_end(name, index) if name[index] == "[" else -1
        atoms.append(name[index : end + 1] if end > 0 else name[index])
        index = end + 1 if end > 0 else index + 1
    return atoms


def _is_class(atom: str) -> bool:
    return len(atom) > 1


def _translate_atom(atom: str) -> str:
    if atom == "?":
        return "[^/]"
    if not _is_class(atom):
        return re.escape(atom)
    is_negated = atom[1] == "!"
    inside = atom[2:-1] if is_negated else atom[1:-1]
    inside = re.sub(r"([\\\[\]^&~|])", r"\\\1", inside)
    # A negated class must not match the separator either.
    return f"[^/{inside}]" if is_negated else f"[{inside}]"


def _translate_name(name: str) -> str:
    if name == "*":
        return "[^/]+"
    pieces: list[list[str]] = [[]]
    for atom in _split_name(name):
        if atom == "*":
            pieces.append([])
        else:
            pieces[-1].append(_translate_atom(atom))
    first, *rest = ("".join(piece) for piece in pieces)
    if not rest:
        return first
    # Atomic groups: the leftmost place of a middle piece is as good as any other, so the regex never backtracks and
    # `*a*a*a*a*b` stays linear.
    middle = "".join(f"(?>[^/]*?{piece})" for piece in rest[:-1] if piece)
    return f"{first}{middle}[^/]*{rest[-1]}"


@functools.lru_cache(maxsize=4096)
def _compile_name(name: str) -> re.Pattern[str]:
    return re.compile(_translate_name(name), re.DOTALL)


def _check_name(name: str, text: str) -> None:
    try:
        _compile_name(name)
    except re.error as problem:
        raise PatternError(f"pattern {text!r}: {name!r} is not a name with wildcards ({problem})") from None


@functools.lru_cache(maxsize=65536)
def _compile_tail(tail: tuple[str, ...]) -> re.Pattern[str]:
    """Compile one expression for all names after the literal prefix. Patterns with the same tail share it."""
    if tail == EVERYTHING_BELOW:
        return re.compile(".+", re.DOTALL)
    segments: list[list[str]] = [[]]
    for name in tail:
        if name == CROSS:
            segments.append([])
        else:
            segments[-1].append(_translate_name(name))
    first, *rest = ("/".join(segment) for segment in segments)
    if not rest:
        return re.compile(first, re.DOTALL)
    middle = "".join(f"(?>(?:[^/]+/)*?{segment}/)" for segment in rest[:-1])
    return re.compile(f"{first}{'/' if first else ''}{middle}(?:[^/]+/)*{rest[-1]}", re.DOTALL)


@functools.lru_cache(maxsize=65536)
def _compile_entry(tail: tuple[str, ...]) -> re.Pattern[str]:
    """Compile an expression for the folders below the literal prefix that can hold a match."""
    expression = ""
    # The last name is that of a file, so a folder as deep as the whole tail holds no match.
    for depth, name in reversed(list(enumerate(tail[:-1]))):
        separator = "/" if depth else ""
        expression = f"(?:{separator}.*)?" if name == CROSS else f"(?:{separator}{_translate_name(name)}{expression})?"
    return re.compile(expression, re.DOTALL)


def intersects(one: Pattern, other: Pattern) -> bool:
    """Can a path match both? Exact for names, `*`, `?` and `**`. Two classes in one place always count as meeting."""
    if one.is_absolute != other.is_absolute:
        return True
    shared = min(len(one.prefix), len(other.prefix))
    if one.prefix[:shared] != other.prefix[:shared]:
        return False
    left = [(name, True) for name in one.prefix[shared:]] + [(name, False) for name in one.tail]
    right = [(name, True) for name in other.prefix[shared:]] + [(name, False) for name in other.tail]
    # The pairs (i, j) for which the first i names of `left` and the first j of `right` can spell the same path.
    reachable = {(0, 0)}
    pending = [(0, 0)]
    while pending:
        i, j = pending.pop()
        if i == len(left) and j == len(right):
            return True
        for step in _steps(left, right, i, j):
            if step not in reachable:
                reachable.add(step)
                pending.append(step)
    return False


Token = tuple[str, bool]


def _steps(left: list[Token], right: list[Token], i: int, j: int) -> Iterator[tuple[int, int]]:
    is_cross_left = i < len(left) and left[i] == (CROSS, False)
    is_cross_right = j < len(right) and right[j] == (CROSS, False)
    if is_cross_left:
        yield i + 1, j
        if j < len(right):
            yield i, j + 1
    if is_cross_right:
        yield i, j + 1
        if i < len(left):
            yield i + 1, j
    if i < len(left) and j < len(right) and not is_cross_left and not is_cross_right and _names_meet(left[i], right[j]):
        yield i + 1, j + 1


def _names_meet(one: Token, other: Token) -> bool:
    (name, is_literal), (other_name, is_other_literal) = one, other
    if is_literal and is_other_literal:
        return name == other_name
    if is_literal:
        return _compile_name(other_name).fullmatch(name) is not None
    if is_other_literal:
        return _compile_name(name).fullmatch(other_name) is not None
    return _globs_meet(_split_name(name), _split_name(other_name))


def _globs_meet(left: list[str], right: list[str]) -> bool:
    """Can a name match both globs? Walks over pairs of positions, where `*` may take any character of the other."""
    reachable = {(0, 0)}
    pending = [(0, 0)]
    while pending:
        i, j = pending.pop()
        if i == len(left) and j == len(right):
            return True
        a = left[i] if i < len(left) else None
        b = right[j] if j < len(right) else None
        steps: list[tuple[int, int]] = []
        if a == "*":
            steps += [(i + 1, j)] + ([(i, j + 1)] if b is not None else [])
        if b == "*":
            steps += [(i, j + 1)] + ([(i + 1, j)] if a is not None else [])
        if a is not None and b is not None and "*" not in (a, b) and _atoms_meet(a, b):
            steps.append((i + 1, j + 1))
        for step in steps:
            if step not in reachable:
                reachable.add(step)
                pending.append(step)
    return False


def _atoms_meet(a: str, b: str) -> bool:
    if a == b or "?" in (a, b) or (_is_class(a) and _is_class(b)):
        return True
    if _is_class(a):
        return re.fullmatch(_translate_atom(a), b) is not None
    return _is_class(b) and re.fullmatch(_translate_atom(b), a) is not None


class Excludes:
    """The paths a binding ignores: bare names that count in any folder, and patterns under root.

    Bare names are searched only after `start`, the literal prefix of the binding. A person who writes
    `file: notes.tmp` or `root: ~/.venv/lib` wants exactly that path.
    """

    __slots__ = ("_hidden", "_names", "_patterns", "_texts")

    def __init__(self, names: tuple[str, ...], patterns: tuple[Pattern, ...], hidden: tuple[Pattern, ...]) -> None:
        self._texts = names
        self._names = _compile_names(names)
        self._patterns = patterns
        self._hidden = hidden

    @classmethod
    def build(
        cls, root: str, names: tuple[str, ...], texts: tuple[str, ...] = (), hidden: tuple[str, ...] = ()
    ) -> Excludes:
        """Build the excludes of a binding. `names` are bare names that always count.

        A text of the user without an inner `/` is a bare name too, as in .gitignore.
        """
        bare = tuple(text.rstrip("/") for text in texts if "/" not in text.rstrip("/"))
        patterns = tuple(parse_under(text, root) for text in texts if "/" in text.rstrip("/"))
        return cls(names + bare, patterns, tuple(parse_under(text, root) for text in hidden))

    def covers(self, path: str, start: int = 1) -> str | None:
        """Return the text of the exclude that covers this absolute path or a folder above it. None if there is none."""
        # `start` is the offset after a slash; the search includes that slash.
        if self._names is not None and self._names.search(path, start - 1) is not None:
            return self._name_that_covers(path[start:])
        for pattern in self._patterns:
            if pattern.matches(path) or _matches_above(pattern, path):
                return pattern.text
        for pattern in self._hidden:
            if pattern.matches(path):
                return f"{pattern.text} (written by the session itself)"
        return None

    def prunes(self, folder: str, start: int = 1) -> bool:
        """Is all below this folder ignored? A hidden wildcard that matches the folder does not hide its files."""
        if self._names is not None and self._names.search(folder, start - 1) is not None:
            return True
        if any(pattern.matches(folder) or _matches_above(pattern, folder) for pattern in self._patterns):
            return True
        return any(pattern.is_literal and pattern.matches(folder) for pattern in self._hidden)

    def _name_that_covers(self, below: str) -> str:
        names = below.split("/")
        return next(text for text in self._texts if any(_compile_name(text).fullmatch(name) for name in names))


def _matches_above(pattern: Pattern, path: str) -> bool:
    """Does the pattern match a folder above this path? Excluding a folder excludes its content (`vendor/*`)."""
    if pattern.is_literal:
        return False
    end = path.rfind("/")
    while end > len(pattern.base):
        if pattern.matches(path[:end]):
            return True
        end = path.rfind("/", 0, end)
    return False


@functools.lru_cache(maxsize=1024)
def _compile_names(names: tuple[str, ...]) -> re.Pattern[str] | None:
    if not names:
        return None
    return re.compile(f"/(?:{'|'.join(_compile_name(name).pattern for name in names)})(?=/|\\Z)", re.DOTALL)


class NearMiss(Struct, Generic[T], frozen=True):
    """A pattern that does not match a path but was perhaps meant to, and a text that says why not."""

    pattern: Pattern
    value: T
    words: str


# A list that only grows. A removal makes a new list, so that a look in another thread may read while the loop inserts.
# Tuples were copied at each insert, which took 0.7 s for 10,000 sessions with one program.
_Entries = list[tuple[Pattern, T]]


class _Node(Generic[T]):
    """One literal folder of the trie."""

    __slots__ = ("children", "literals", "names", "tails")

    def __init__(self) -> None:
        self.children: dict[str, _Node[T]] = {}
        # The last name of a literal pattern -> its values.
        self.literals: dict[str, _Entries[T]] = {}
        # Patterns `**/name`, by name. One lookup serves thousands of them.
        self.names: dict[str, _Entries[T]] = {}
        self.tails: tuple[tuple[re.Pattern[str], _Entries[T]], ...] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.children or self.literals or self.names or self.tails)

    def entries(self) -> Iterator[tuple[Pattern, T]]:
        for group in (*self.literals.values(), *self.names.values(), *(found for _, found in self.tails)):
            yield from group


class PathTrie(Generic[T]):
    """Absolute patterns by their literal folders: `find` costs the depth of a path, not the number of patterns."""

    def __init__(self) -> None:
        self._root: _Node[T] = _Node()

    def insert(self, pattern: Pattern, value: T) -> None:
        folders = pattern.prefix[:-1] if pattern.is_literal else pattern.prefix
        node = self._root
        for name in folders:
            child = node.children.get(name)
            if child is None:
                child = node.children[name] = _Node()
            node = child
        _put(node, pattern, value)

    def remove(self, pattern: Pattern, value: T) -> None:
        folders = pattern.prefix[:-1] if pattern.is_literal else pattern.prefix
        path = [self._root]
        for name in folders:
            child = path[-1].children.get(name)
            if child is None:
                return
            path.append(child)
        _take(path[-1], pattern, value)
        for name, parent, child in reversed(list(zip(folders, path, path[1:], strict=False))):
            if not child.is_empty:
                return
            del parent.children[name]

    def find(self, path: str) -> list[T]:
        """Return the values of all patterns that match this absolute path."""
        found: list[T] = []
        names = path[1:].split("/")
        node = self._root
        start = 1
        for name in names:
            for expression, entries in node.tails:
                if expression.fullmatch(path, start) is not None:
                    found += [value for _, value in entries]
            if node.names and (named := node.names.get(names[-1])):
                found += [value for _, value in named]
            if node.literals and (literal := node.literals.get(name)):
                found += [value for _, value in literal]
            child = node.children.get(name)
            if child is None:
                return found
            node = child
            start += len(name) + 1
        return found

    def leads_through(self, path: str) -> bool:
        """Is this absolute path one of the literal folders of a pattern?"""
        node = self._root
        for name in path[1:].split("/"):
            child = node.children.get(name)
            if child is None:
                return False
            node = child
        return True

    def is_alone(self, pattern: Pattern) -> bool:
        """Is this the only pattern above, in and below its folder? A quick check, which says False when in doubt."""
        node = self._root
        for name in pattern.prefix:
            child = node.children.get(name)
            if child is None or node.names or node.tails or name in node.literals:
                return False
            node = child
        return len(list(itertools.islice(_below(node), 2))) == 1

    def meeting(self, pattern: Pattern) -> list[T]:
        """Return the values of all patterns that can match a path that this absolute pattern also matches."""
        found: list[T] = []
        node = self._root
        for depth, name in enumerate(pattern.prefix):
            is_last = depth == len(pattern.prefix) - 1
            found += _meeting_here(node, pattern, None if is_last and pattern.is_literal else name)
            child = node.children.get(name)
            if child is None:
                return found
            node = child
        found += [value for entry, value in _below(node) if intersects(entry, pattern)]
        return found

    def entries(self) -> Iterator[tuple[Pattern, T]]:
        return _below(self._root)

    def near_misses(self, path: str, limit: int = 10) -> list[NearMiss[T]]:
        """List the patterns that would match this path with another case, extension or folder, the nearest first."""
        misses: list[tuple[int, NearMiss[T]]] = []
        for pattern, value in self.entries():
            if pattern.matches(path):
                continue
            rank, words = _miss(pattern, path)
            if words:
                misses.append((rank, NearMiss(pattern, value, words)))
        misses.sort(key=lambda ranked: ranked[0])
        return [miss for _, miss in misses[:limit]]


def _put(node: _Node[T], pattern: Pattern, value: T) -> None:
    entry = (pattern, value)
    bucket, name = _bucket(node, pattern)
    if bucket is not None:
        bucket.setdefault(name, []).append(entry)
        return
    expression = _compile_tail(pattern.tail)
    for known, entries in node.tails:
        if known is expression:
            entries.append(entry)
            return
    node.tails = (*node.tails, (expression, [entry]))


def _take(node: _Node[T], pattern: Pattern, value: T) -> None:
    entry = (pattern, value)
    bucket, name = _bucket(node, pattern)
    if bucket is not None:
        left = _without(bucket.get(name, []), entry)
        if left:
            bucket[name] = left
        else:
            bucket.pop(name, None)
        return
    expression = _compile_tail(pattern.tail)
    kept = ((known, _without(found, entry) if known is expression else found) for known, found in node.tails)
    node.tails = tuple((known, found) for known, found in kept if found)


def _bucket(node: _Node[T], pattern: Pattern) -> tuple[dict[str, _Entries[T]] | None, str]:
    if pattern.is_literal:
        return node.literals, pattern.prefix[-1] if pattern.prefix else ""
    if len(pattern.tail) == 2 and pattern.tail[0] == CROSS and not _has_wildcard(pattern.tail[1]):
        return node.names, pattern.tail[1]
    return None, ""


def _without(entries: _Entries[T], entry: tuple[Pattern, T]) -> _Entries[T]:
    """Return the entries without one occurrence of this entry. An entry that was inserted twice stays once."""
    if entry not in entries:
        return entries
    index = entries.index(entry)
    return entries[:index] + entries[index + 1 :]


def _meeting_here(node: _Node[T], pattern: Pattern, name: str | None) -> Iterable[T]:
    """List the values in a folder on the pattern's path whose patterns can meet this one. Of the literal patterns, only
    the one on that path can."""
    groups = [*node.names.values(), *(entries for _, entries in node.tails)]
    if name is None:
        groups.append(node.literals.get(pattern.prefix[-1], []))
    elif name in node.literals:
        groups.append(node.literals[name])
    return [value for group in groups for entry, value in group if intersects(entry, pattern)]


def _below(node: _Node[T]) -> Iterator[tuple[Pattern, T]]:
    pending = [node]
    while pending:
        node = pending.pop()
        yield from node.entries()
        pending += node.children.values()


def _miss(pattern: Pattern, path: str) -> tuple[int, str]:
    if _lower(pattern).matches(path.lower()):
        return 0, "differs only in upper and lower case"
    last = pattern.prefix[-1] if pattern.is_literal and pattern.prefix else pattern.tail[-1]
    if last == "*" or last == CROSS:
        return 9, ""
    folder, _, name = path.rpartition("/")
    stem, dot, extension = name.rpartition(".")
    wanted = last.rpartition(".")[2]
    if (
        dot
        and stem
        and wanted != extension
        and not _has_wildcard(wanted)
        and pattern.matches(f"{folder}/{stem}.{wanted}")
    ):
        return 1, f"has the extension .{wanted}, not .{extension}"
    is_same_name = name == last if pattern.is_literal else _compile_name(last).fullmatch(name) is not None
    if is_same_name:
        return 2, f"lies in another folder: {pattern.literal_prefix}"
    return 9, ""


def _lower(pattern: Pattern) -> Pattern:
    return Pattern(
        pattern.text,
        tuple(name.lower() for name in pattern.prefix),
        tuple(name.lower() for name in pattern.tail),
        pattern.is_absolute,
    )


def contains(folder: str, path: str) -> bool:
    """Is `path` this folder, or inside of it? Both without dots and without a slash at their end."""
    return path == folder or path.startswith("/" if folder == "/" else f"{folder}/")
