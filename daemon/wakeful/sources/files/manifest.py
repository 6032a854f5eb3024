"""The paths that one target matched, and their combined version. One changed path costs one addition, not a rehash of
all.

A version is the sum, modulo 2^512, of a 64-byte digest per path (its relative name, kind and content), hashed together
with the number of paths. A sum does not depend on order and can be subtracted from (rule 6). Finding other contents
with the same sum takes about 2^45 chosen files. An attacker who can choose a session's inputs has simpler means, so the
sum protects only against accident.
"""

from __future__ import annotations

import itertools
import operator
import os
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from types import MappingProxyType

from wakeful.core.looking.patterns import contains
from wakeful.core.record.observations import PathChange
from wakeful.core.spec.bindings import Compare
from wakeful.sources.files.entry import Seen, describe_tags, list_tags, show

ABSENT = "absent"
_MODULUS = 1 << 512
# One counter for all manifests, so that a target that was forgotten and is followed again never repeats an old stamp.
_moves = itertools.count(1)


class Naming:
    """Turns absolute paths into the names in a version.

    They are relative to the root, so that a project can be moved.
    """

    __slots__ = ("_cut", "_lead")

    def __init__(self, root: str, base: str, is_absolute: bool) -> None:
        if contains(root, base):
            self._lead, self._cut = "", len(root.rstrip("/")) + 1
        elif is_absolute:
            self._lead, self._cut = "", 0
        else:
            self._lead, self._cut = os.path.relpath(base, root), len(base)

    def name_all(self, paths: Iterable[str]) -> list[str]:
        lead, cut = self._lead, self._cut
        return [lead + path[cut:] for path in paths]


class Manifest:
    """The entries of a target by path, with the sum of the version kept up to date."""

    __slots__ = ("_compare", "_doubted", "_moved", "_naming", "_sum", "_unwritten", "_version", "_written", "members")

    def __init__(self, naming: Naming, compare: Compare) -> None:
        self._naming = naming
        self._compare: Compare = compare
        self._sum = 0
        self._moved = self._written = self._doubted = next(_moves)
        self._unwritten: list[str] = []
        # The cached version. None until it is asked for, and again after the sum has changed.
        self._version: str | None = None
        self.members: dict[str, Seen] = {}

    @classmethod
    def of(cls, naming: Naming, compare: Compare, members: Iterable[tuple[str, Seen]]) -> Manifest:
        """Build a manifest from many paths at once, for a start with 50,000 paths.

        The sum is reduced only at the end.
        """
        manifest = cls(naming, compare)
        manifest.members.update(members)
        names = naming.name_all(manifest.members)
        manifest._sum = _add_up(_encode(names), list_tags(manifest.members.values(), compare)) % _MODULUS
        return manifest

    def copy(self) -> Manifest:
        twin = Manifest(self._naming, self._compare)
        twin._sum, twin._moved, twin._version, twin.members = self._sum, self._moved, self._version, self.members.copy()
        twin._written, twin._doubted = self._written, self._doubted
        return twin

    def put_all(
        self, found: Mapping[str, Seen | None], evidence: Mapping[str, str] = MappingProxyType({})
    ) -> list[PathChange]:
        """Set the entry of each of these paths (None for no entry). Returns the changes that count.

        `evidence` holds what watchers reported for each path. A whole look is handled at once, column by column,
        because with 100,000 changed files this is half of the cost of a look.
        """
        members = self.members
        known = list(map(members.get, found))
        # At a start nearly all paths are unchanged.
        if not any(map(operator.is_not, known, found.values())):
            return []
        paths, before, seen = zip(
            *[one for one in zip(found, known, found.values(), strict=True) if one[1] is not one[2]], strict=True
        )
        was, tags = list_tags(before, self._compare), list_tags(seen, self._compare)
        counting = [one for one in zip(paths, was, tags, strict=True) if one[1] != one[2]]
        if any(was is None or now is None or was.key != now.key for was, now in zip(before, seen, strict=True)):
            self._moved = next(_moves)
            # The version includes the number of paths, and a path may be added without a counting change.
            self._version = None
            self._judge_moves([path for path, old, new in zip(paths, was, tags, strict=True) if old == new], evidence)
        if counting:
            self._written = next(_moves)
        members.update((path, now) for path, now in zip(paths, seen, strict=True) if now is not None)
        for path, now in zip(paths, seen, strict=True):
            if now is None:
                members.pop(path, None)
        if not counting:
            return []
        counted, old_tags, new_tags = zip(*counting, strict=True)
        names = self._naming.name_all(counted)
        encoded = _encode(names)
        self._sum = (self._sum + _add_up(encoded, new_tags) - _add_up(encoded, old_tags)) % _MODULUS
        self._version = None
        return list(map(PathChange, map(show, names), describe_tags(old_tags), describe_tags(new_tags)))

    @property
    def version(self) -> str:
        if self._version is None:
            whole = self._sum.to_bytes(64, "big") + len(self.members).to_bytes(8, "big")
            self._version = blake2b(whole, digest_size=20).hexdigest()
        return self._version

    def _judge_moves(self, same: list[str], evidence: Mapping[str, str]) -> None:
        """Judge paths whose stat changed and whose content is the same: were they written meanwhile (rule 17)?"""
        told = {evidence.get(path, "unknown") for path in same}
        if "written" in told:
            self._written = next(_moves)
        if "unknown" in told:
            self._doubted = next(_moves)
        self._unwritten += [path for path in same if evidence.get(path) == "unwritten"]

    def take_unwritten(self) -> list[str]:
        """Take the paths whose stat changed, whose content is the same, and for which no write was reported so far."""
        unwritten, self._unwritten = self._unwritten, []
        return unwritten

    def note_write(self) -> None:
        """Record that a write was reported after all."""
        self._written = next(_moves)

    @property
    def stamp(self) -> str:
        """A stamp that changes if any stat key changes, even if the contents are equal again."""
        return str(self._moved)

    @property
    def written(self) -> str:
        """A stamp that changes if any content changes, or was written and is equal again. Changed attributes do not
        count (rule 17).
        """
        return str(self._written)

    @property
    def doubted(self) -> str:
        """A stamp that changes if a stat key changes, the content is equal, and it is unknown whether the file was
        written meanwhile.
        """
        return str(self._doubted)


def _encode(names: list[str]) -> list[bytes]:
    """Encode each name as the file system does, with a final zero byte, which no name contains."""
    return [name + b"\0" for name in os.fsencode("\0".join(names)).split(b"\0")] if names else []


def _add_up(names: Iterable[bytes], tags: Iterable[bytes | None]) -> int:
    """Sum up what each path adds to a version. A missing path adds nothing."""
    return sum(
        [
            int.from_bytes(blake2b(name + tag).digest(), "big")
            for name, tag in zip(names, tags, strict=True)
            if tag is not None
        ]
    )
