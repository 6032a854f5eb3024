"""Combines all sources into one: each target goes to the source of its kind.

The wiring constructs it over the four sources. The daemon uses it as `contract.Sources`. It looks at nothing itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from wakeful.core.deciding.plan import Look
from wakeful.core.looking.path_reports import Bounds, Compared, PathMeaning
from wakeful.core.looking.targets import CommitsTarget, FileTarget, ProbeTarget, ServiceTarget, Target
from wakeful.sources.checks.probes import ProbeSource
from wakeful.sources.checks.services import ServiceSource
from wakeful.sources.contract import LatestLook, Source
from wakeful.sources.files.source import FileSource
from wakeful.sources.git.source import CommitSource
from wakeful.text.display import count


class AllSources:
    def __init__(self, files: FileSource, commits: CommitSource, probes: ProbeSource, services: ServiceSource) -> None:
        self._files = files
        self._commits = commits
        self._by_kind: dict[type[Target], Source[Any]] = {
            FileTarget: files,
            CommitsTarget: commits,
            ProbeTarget: probes,
            ServiceTarget: services,
        }
        self._kinds: dict[str, type[Target]] = {}

    @property
    def kinds(self) -> frozenset[type[Target]]:
        """The kinds of targets that have a source."""
        return frozenset(self._by_kind)

    def follow(self, targets: Iterable[Target]) -> None:
        for kind, source in self._by_kind.items():
            own = [target for target in targets if type(target) is kind]
            self._kinds.update((target.key, kind) for target in own)
            if own:
                source.follow(own)

    def forget(self, keys: Iterable[str]) -> None:
        for key in keys:
            kind = self._kinds.pop(key, None)
            if kind is not None:
                self._by_kind[kind].forget([key])

    def look(self, look: Look) -> None:
        kind = self._kinds.get(look.target)
        if kind is None:
            return
        if kind is CommitsTarget:
            self._commits.look(look.target, look.generation, look.base)
        elif kind is FileTarget:
            self._files.look(look.target, look.generation, takes_open=look.takes_open)
        else:
            self._by_kind[kind].look(look.target, look.generation)

    async def close(self) -> None:
        for source in self._by_kind.values():
            await source.close()

    def list_defects(self) -> dict[str, int]:
        return {defect.words: defect.count for defect in self._files.defects.met}

    def hear(self) -> None:
        self._files.hear()

    def explain(self, path: str) -> list[tuple[str, PathMeaning]]:
        return self._files.explain(path)

    def describe(self, key: str) -> str | None:
        found = self._files.describe(key)
        return (
            f"{count(found.files, 'file')}, {count(found.watched_folders, 'folder')} watched"
            if found is not None
            else None
        )

    def find(self, key: str) -> LatestLook | None:
        return self._files.find(key)

    def peek(self, key: str) -> LatestLook | None:
        return self._files.peek(key)

    async def export(self, key: str, version: str, folder: str) -> None:
        await self._commits.export(key, version, folder)

    async def compare(self, key: str, old: str, new: str, bounds: Bounds) -> Compared:
        return await self._commits.compare(key, old, new, bounds)
