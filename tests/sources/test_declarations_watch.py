"""The watch of the declarations.

Hints alone report a change soon, also after the project's folder was moved away and came back.
"""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from sources.controlled_watcher import Watcher
from wait_conditions import eventually_async
from wakeful.core.record.observations import AgentsRead, SettingsRead, SpecsRead
from wakeful.settings import SETTINGS_FILE, ProjectReader
from wakeful.sources import declarations
from wakeful.sources.declarations import Declarations, DeclarationsWatch
from wakeful.sources.hints.watcher_choice import choose_hints

pytestmark = pytest.mark.asyncio

GOOD = "objective: {}\nrun: {{command: [echo]}}\n"


class Watched:
    """A project deep in a folder, its watch, and the sessions that its reports declare."""

    def __init__(self, folder: Path) -> None:
        self.project = folder / "work/project"
        self.specs = self.project / "sessions.d"
        self.specs.mkdir(parents=True)
        self.declared: dict[str, str | None] = {}
        self.write("a", "one")
        self.declarations = Declarations(ProjectReader(self.specs), self._take)
        self.watcher = Watcher(choose_hints("inotify"))
        self.watch = DeclarationsWatch(
            self.declarations,
            asyncio.get_running_loop(),
            self.watcher.make,
            str(self.specs),
            SETTINGS_FILE,
            lambda: None,
        )

    def write(self, name: str, objective: str) -> None:
        (self.specs / f"{name}.yaml").write_text(GOOD.format(objective))

    def _take(self, report: SpecsRead | SettingsRead | AgentsRead) -> None:
        if isinstance(report, SpecsRead):
            self.declared |= {one.spec.name: one.spec.objective for one in report.declared}
            for name in report.removed:
                self.declared.pop(name, None)

    async def says(self, **declared: str) -> None:
        await eventually_async(lambda: self.declared == declared, what=f"{declared} declared")


@pytest_asyncio.fixture
async def watched(tmp_path: Path) -> AsyncIterator[Watched]:
    """A watched project without polling, so that only hints report changes."""
    watched = Watched(tmp_path)
    if watched.watch.take(await watched.watch.look()):
        await watched.watch.read()
    assert watched.declared == {"a": "one"}
    yield watched
    watched.watch.close()


@pytest.mark.parametrize("moved", ["work", "work/project", "work/project/sessions.d"])
async def test_a_folder_renamed_away_and_back_is_declared_soon(watched: Watched, tmp_path: Path, moved: str) -> None:
    """The folder may be any on the way to the specs.

    Its sessions are declared again when it is back, and later edits are noticed.
    """
    for _ in range(2):
        (tmp_path / moved).rename(tmp_path / "away")
        if moved == "work":
            # A folder further up is not watched. A poll finds that it is gone.
            await watched.watch.read()
        await watched.says()
        (tmp_path / "away").rename(tmp_path / moved)
        await watched.says(a="one")
    watched.write("a", "two")
    await watched.says(a="two")


async def test_a_folder_that_is_back_at_once_is_heard_as_before(watched: Watched, tmp_path: Path) -> None:
    """The watch of the folder ended, although no look missed the folder."""
    watched.project.rename(tmp_path / "away")
    (tmp_path / "away").rename(watched.project)
    (watched.project / SETTINGS_FILE).write_text("defaults: {objective: of all}\n")
    (watched.specs / "b.yaml").write_text("run: {command: [echo]}\n")
    await watched.says(a="one", b="of all")
    (watched.project / SETTINGS_FILE).write_text("defaults: {objective: of everybody}\n")
    await watched.says(a="one", b="of everybody")


async def test_a_folder_made_anew_step_by_step_is_declared(watched: Watched, tmp_path: Path) -> None:
    """The folder is removed with its contents, as by a checkout of another branch."""
    shutil.rmtree(tmp_path / "work")
    await watched.says()
    for folder in ("work", "work/project", "work/project/sessions.d"):
        (tmp_path / folder).mkdir()
        await asyncio.sleep(0)
    watched.write("a", "made anew")
    await watched.says(a="made anew")


async def test_a_poll_comes_soon_while_a_folder_is_missing(
    watched: Watched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Polls may be rare because there is much to read. While the folder is missing they are frequent."""
    monkeypatch.setattr(Declarations, "poll_seconds", 3600.0)
    monkeypatch.setattr(declarations, "LEAST_POLL_SECONDS", 0.05)
    keeping = asyncio.create_task(watched.watch.keep())
    try:
        watched.project.rename(tmp_path / "away")
        await watched.says()
        watched.watcher.is_deaf = True
        (tmp_path / "away").rename(watched.project)
        await watched.says(a="one")
    finally:
        keeping.cancel()


async def test_a_reading_that_is_asked_for_during_another_follows_it(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A spec that is saved after a reading began is declared by the reading that was requested meanwhile."""
    may_go_on, begun = threading.Event(), threading.Event()
    look = Declarations.look

    def look_slowly(self: Declarations) -> object:
        found = look(self)
        begun.set()
        may_go_on.wait(10)
        return found

    monkeypatch.setattr(Declarations, "look", look_slowly)
    first = asyncio.ensure_future(watched.watch.read())
    await asyncio.to_thread(begun.wait, 10)
    watched.write("a", "saved meanwhile")
    second = asyncio.ensure_future(watched.watch.read())
    third = asyncio.ensure_future(watched.watch.read())
    may_go_on.set()
    await first
    assert watched.declared == {"a": "one"} and not second.done()
    await asyncio.gather(second, third)
    assert watched.declared == {"a": "saved meanwhile"}


async def test_a_reading_that_began_before_a_rename_is_made_again(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the old name would be declared once more, as a session of its own."""
    may_go_on, begun = threading.Event(), threading.Event()
    look = Declarations.look

    def look_slowly(self: Declarations) -> object:
        found = look(self)
        begun.set()
        may_go_on.wait(10)
        return found

    watched.write("b", "two")
    monkeypatch.setattr(Declarations, "look", look_slowly)
    reading = asyncio.ensure_future(watched.watch.read())
    await asyncio.to_thread(begun.wait, 10)
    (watched.specs / "b.yaml").rename(watched.specs / "c.yaml")
    watched.watch.outdate()
    may_go_on.set()
    await reading
    assert watched.declared == {"a": "one", "c": "two"}
