"""Real git repositories for tests, and a follower that collects the reports of a commit source."""

import os
import subprocess
from pathlib import Path

from sources.controlled_watcher import Watcher
from sources.timed_loop import TimedLoop
from wait_conditions import eventually_async
from wakeful.core.looking.targets import CommitsTarget
from wakeful.core.record.observations import LookResult, TargetLooked, TargetsHinted
from wakeful.sources.git.source import CommitSource


class GitRepo:
    """A repository in which a test works as a person does, with the git command."""

    def __init__(self, path: Path, *options: str, is_new: bool = True) -> None:
        self.path = path
        if is_new:
            path.mkdir(parents=True, exist_ok=True)
            self("init", "-q", "-b", "main", *options)

    def __call__(self, *words: str, check: bool = True, text: str | None = None) -> str:
        done = subprocess.run(["git", *words], cwd=self.path, input=text, capture_output=True, text=True, check=False)
        assert not check or done.returncode == 0, f"git {' '.join(words)}: {done.stderr}"
        return done.stdout.strip()

    def write(self, name: str, content: str = "") -> None:
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)

    def commit(self, name: str, content: str, message: str = "a change") -> str:
        """Write one file, commit it, and return the commit's id."""
        self.write(name, content)
        self("add", "--", name)
        self("commit", "-q", "-m", message)
        return self.id("HEAD")

    def id(self, name: str) -> str:
        return self("rev-parse", "--verify", name)


class Follower:
    """A stand-in for the reactor: it asks for looks, and keeps the results and the hints."""

    def __init__(self, **options: object) -> None:
        self.looked: list[LookResult] = []
        self.hinted: list[str] = []
        self._generation = 0
        make_hints = options.pop("make_hints", None)
        options = {"poll_seconds": 0.05, "idle_poll_seconds": 0.05} | options
        self.loop = TimedLoop()
        self.watcher = None if make_hints is None else Watcher(make_hints)
        self.source = CommitSource(
            self._take, self.loop, None if self.watcher is None else self.watcher.make, **options
        )

    async def __aenter__(self) -> "Follower":
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.source.close()

    def _take(self, observation: TargetsHinted | TargetLooked) -> None:
        match observation:
            case TargetsHinted(targets=targets):
                self.hinted += targets
            case TargetLooked(result=result):
                self.looked.append(result)

    def follow(self, root: Path | str, path: str = "src", **options: object) -> str:
        target = CommitsTarget(
            key=f"{root} {path} {sorted(options.items())}", root=os.fspath(root), path=path, **options
        )
        self.source.follow([target])
        return target.key

    async def look(self, key: str, base: str | None = None) -> LookResult:
        self._generation += 1
        generation = self._generation
        self.source.look(key, generation, base)
        await eventually_async(lambda: any(result.generation == generation for result in self.looked))
        return next(result for result in self.looked if result.generation == generation)

    async def hint(self, key: str) -> None:
        """Wait for a new hint for this target, and use it up."""
        await eventually_async(lambda: key in self.hinted, what=f"a hint for {key}")
        self.hinted = [other for other in self.hinted if other != key]
