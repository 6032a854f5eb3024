"""One followed target: its known state, and the paths that the next look must visit.

The file source owns these objects, on the loop. A look in a thread reads one and does not change it. A large daemon has
ten thousand of them at rest, so nothing is stored twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from msgspec import Struct

from wakeful.core.looking.path_reports import CannotTell, Excluded, Found, NotYetLooked, PathMeaning
from wakeful.core.looking.patterns import Excludes, contains, parse_under
from wakeful.core.looking.targets import FileTarget
from wakeful.core.spec.session import DEFAULT_EXCLUDES
from wakeful.sources.files.manifest import Manifest, Naming
from wakeful.sources.files.walk import StateFolder, Walker

# The evidence for a change at a path. `unwritten` means that a watcher reported the path, but no write.
Evidence = Literal["written", "unwritten", "unknown"]


@dataclass(frozen=True, slots=True)
class LookScope:
    """The paths that a look must visit: single paths, whole folders, or everything the target matches."""

    paths: Mapping[str, Evidence] = field(default_factory=dict)
    trees: frozenset[str] = frozenset()
    is_whole: bool = False


class Followed:
    """One target and its last known state."""

    __slots__ = (
        "asked_again", "folders", "is_looking", "is_remounted", "is_whole", "key", "looked_at", "manifest", "mounts",
        "naming", "paths", "pattern", "problem", "refused", "target", "trees", "version", "walker",
    )  # fmt: skip

    def __init__(self, target: FileTarget, state: StateFolder, excludes: Excludes) -> None:
        self.target = target
        self.key = target.key
        self.pattern = parse_under(target.pattern, target.root)
        self.naming = Naming(target.root, self.pattern.base, target.pattern.startswith("/"))
        self.walker = Walker(self.pattern, excludes, len(self.pattern.base) + 1, state)
        # None until the first look has ended.
        self.manifest: Manifest | None = None
        self.version: str | None = None
        self.problem: str | None = None
        self.looked_at: float | None = None
        # By folder watched for this target: its mtime when it was listed, -1 if it was only watched.
        self.folders: dict[str, int] = {}
        # The mount points of the target's paths when they were last seen. If one of them is not mounted now, the target
        # is unknown (rule 5).
        self.mounts: frozenset[str] = frozenset()
        # True if one of these mount points changed since. A run may have read the files below it (rule 17).
        self.is_remounted = False
        # Folders that could not be watched, each with the reason.
        self.refused: dict[str, str] = {}
        self.paths: dict[str, Evidence] | None = None
        self.trees: set[str] | None = None
        self.is_whole = True
        self.is_looking = False
        # The generation asked for while a look was under way, and whether that look accepts open files.
        self.asked_again: tuple[int, bool] | None = None

    def note_remount(self, points: set[str]) -> None:
        self.is_remounted = self.is_remounted or not points.isdisjoint(self.mounts)

    def mark(self, path: str, evidence: Evidence = "unknown") -> None:
        """Visit this path at the next look.

        A reported write stays a write, even if something else is reported later.
        """
        if self.paths is None:
            self.paths = {}
        known = self.paths.get(path)
        if known is None or evidence == "written" or known == "unwritten":
            self.paths[path] = evidence

    def is_marked(self, path: str) -> bool:
        return self.paths is not None and path in self.paths

    def mark_tree(self, folder: str) -> None:
        base = self.pattern.base
        if contains(folder, base):
            self.is_whole = True
        elif self.walker.enters(folder):
            if self.trees is None:
                self.trees = set()
            self.trees.add(folder)
        # The folder's own path must be visited too: a file may have been there before, or may be there now.
        self.mark(folder)

    def mark_whole(self) -> None:
        """Let the next look visit every path, because the reports for single paths may be incomplete."""
        self.is_whole = True
        if self.paths:
            self.paths = {
                path: "written" if evidence == "written" else "unknown" for path, evidence in self.paths.items()
            }

    def take_scope(self) -> LookScope:
        scope = LookScope(self.paths or {}, frozenset(self.trees or ()), self.is_whole)
        self.paths, self.trees, self.is_whole = None, None, False
        return scope

    def count_paths(self, scope: LookScope) -> int:
        """Count the paths that a look is known in advance to visit."""
        return len(self.manifest.members) if scope.is_whole and self.manifest is not None else len(scope.paths)

    def put_back(self, scope: LookScope) -> None:
        for path, evidence in scope.paths.items():
            self.mark(path, evidence)
        if scope.trees:
            self.trees = (self.trees or set()) | scope.trees
        self.is_whole = self.is_whole or scope.is_whole

    def explain(self, path: str) -> PathMeaning:
        """Explain a path that the target's pattern matches."""
        excluded = self.walker.excluded_by(path)
        if excluded is not None:
            return Excluded(excluded)
        if self.looked_at is None:
            return NotYetLooked()
        if self.problem is not None:
            return CannotTell(self.problem)
        return Found(self.manifest is not None and path in self.manifest.members)

    @property
    def is_dirty(self) -> bool:
        """True if there is anything to visit."""
        return self.is_whole or bool(self.paths) or bool(self.trees)

    @property
    def degraded(self) -> str | None:
        return f"polling: {next(iter(self.refused.values()))}" if self.refused else None


def build_excludes(target: FileTarget) -> Excludes:
    return Excludes.build(target.root, DEFAULT_EXCLUDES, target.exclude, target.hidden)


class Description(Struct, frozen=True, kw_only=True):
    """The description of one followed target, for `show`."""

    degraded: str | None
    problem: str | None
    files: int
    watched_folders: int
    looked_at: float | None
