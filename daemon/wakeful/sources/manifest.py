"""The paths one target matched, and their combined version: one changed path costs one addition, not a rehash of all.

A version is the sum, modulo 2^512, of a 64-byte digest per path (its relative name, kind and content), finished with the
count. Sums do not care for order and can be subtracted from, which is rule 6. Finding other contents with the same sum
takes some 2^45 chosen files; whoever may choose a session's inputs has simpler ways to mislead it, so the sum guards
against accident, for which it is far more than enough.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable
from hashlib import blake2b

from wakeful.core.observation import PathChange
from wakeful.core.paths import contains
from wakeful.core.spec import Compare
from wakeful.sources.entry import Seen, describe_tag, show

ABSENT = "absent"
_MODULUS = 1 << 512
# One count for all manifests: a target that was forgotten and is followed anew never shows an old stamp again.
_moves = itertools.count(1)


class Naming:
    """Turns absolute paths into the names a version is made of: relative to root, so that a project can be moved."""

    __slots__ = ("_cut", "_lead")

    def __init__(self, root: str, base: str, is_absolute: bool) -> None:
        if contains(root, base):
            self._lead, self._cut = "", len(root.rstrip("/")) + 1
        elif is_absolute:
            self._lead, self._cut = "", 0
        else:
            self._lead, self._cut = os.path.relpath(base, root), len(base)

    def name(self, path: str) -> str:
        return self._lead + path[self._cut :]


class Manifest:
    """Path -> what was seen there, with the sums kept up to date."""

    __slots__ = ("_compare", "_moved", "_naming", "_sum", "_version", "members")

    def __init__(self, naming: Naming, compare: Compare) -> None:
        self._naming = naming
        self._compare: Compare = compare
        self._sum = 0
        self._moved = next(_moves)
        # None until it is asked for, and again when the sum has changed.
        self._version: str | None = None
        self.members: dict[str, Seen] = {}

    @classmethod
    def of(cls, naming: Naming, compare: Compare, members: Iterable[tuple[str, Seen]]) -> Manifest:
        """All at once, for a start with 50,000 paths: the sums are brought into range at the end."""
        manifest = cls(naming, compare)
        manifest.members.update(members)
        name = naming.name
        manifest._sum = sum([_element(os.fsencode(name(path)) + b"\0", seen.tag(compare)) for path, seen in manifest.members.items()]) % _MODULUS
        return manifest

    def copy(self) -> Manifest:
        twin = Manifest(self._naming, self._compare)
        twin._sum, twin._moved, twin._version, twin.members = self._sum, self._moved, self._version, self.members.copy()
        return twin

    def put_all(self, found: Iterable[tuple[str, Seen | None]]) -> list[PathChange]:
        """Let what was seen stand at each of these paths (None: nothing); the changes that count.

        All of a look at once: of 100,000 files changed at once, this is half of what a look costs here.
        """
        members, compare, name_of = self.members, self._compare, self._naming.name
        changes: list[PathChange] = []
        total, is_moved = self._sum, False
        for path, seen in found:
            before = members.get(path)
            if before is seen:
                continue
            is_moved = is_moved or before is None or seen is None or before.key != seen.key
            if seen is not None:
                members[path] = seen
            else:
                del members[path]
            before_tag = before.tag(compare) if before is not None else None
            tag = seen.tag(compare) if seen is not None else None
            if before_tag == tag:
                continue
            name = name_of(path)
            encoded = os.fsencode(name) + b"\0"
            total += _element(encoded, tag) - _element(encoded, before_tag)
            changes.append(
                PathChange(
                    show(name),
                    describe_tag(before_tag) if before_tag is not None else None,
                    describe_tag(tag) if tag is not None else None,
                )
            )
        if changes:
            self._sum, self._version = total % _MODULUS, None
        if is_moved:
            self._moved = next(_moves)
            # The count of paths is part of it, and a path may come without counting.
            self._version = None
        return changes

    @property
    def version(self) -> str:
        if self._version is None:
            whole = self._sum.to_bytes(64, "big") + len(self.members).to_bytes(8, "big")
            self._version = blake2b(whole, digest_size=20).hexdigest()
        return self._version

    @property
    def stamp(self) -> str:
        """Moves when any stat key moved, even if the contents are equal again (rule 17)."""
        return str(self._moved)


def _element(name: bytes, tag: bytes | None) -> int:
    """`name` as the file system has it, closed by a zero byte."""
    if tag is None:
        return 0
    return int.from_bytes(blake2b(name + tag).digest(), "big")
