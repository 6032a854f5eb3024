"""The folders and links that lead to specs are doubted if a run may have put them there. Otherwise they count.

Every case is tried twice: once with runs that could have written, and once without any, which shows the behaviour
without this defence.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from wakeful.trust.ledger import Ledger, Project
from wakeful.trust.path_trust import PathOpener, StepCache, follow_way
from wakeful.trust.spec_reader import DaemonLookups, SpecFolderReader
from wakeful.trust.trust_review import TrustReview

SPEC = "objective: x\nrun: {command: ['true']}\n"
EVIL = "objective: y\nrun: {command: [touch, gotcha]}\n"
ASKING = "objective: x\nagent: docs\nrun: {prompt: Look.}\n"
AGENT = "model: anthropic:claude-sonnet-4-5\nkey: k\nprompt: {file: prompts/role.md}\n"


class House:
    """A project, and a run that can write in some folders from a certain time on."""

    def __init__(self, folder: Path) -> None:
        folder.chmod(0o700)
        self.folder = folder
        self.house = folder / "house"
        self.specs = self.house / "sessions.d"
        (self.specs / "agents").mkdir(parents=True)
        (self.house / "prompts").mkdir()
        self.put("sessions.d/own.yaml", SPEC)
        self.put("sessions.d/ask.yaml", ASKING)
        self.put("sessions.d/agents/docs.yaml", AGENT)
        self.put("prompts/role.md", "Be exact.\n")
        self.known: dict[str, str] = {}
        self.writable: list[Path] = []
        self.began_us = 0
        self.is_shielded = False
        self.restart()

    def put(self, path: str, text: str) -> Path:
        target = self.house / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        return target

    def restart(self) -> None:
        """Start the next daemon. It has the ledger, and the earlier declarations from the log."""
        around = DaemonLookups(runs=self, find_known=self.known.get)
        self.ledger = Ledger(self.folder / "ledger")
        self.reader = SpecFolderReader(self.specs, self.ledger, {}, around=around)

    def find(self, path: str, changed_at: int, *, is_guarded: bool) -> str | None:
        real = os.path.realpath(path)
        could = any(f"{real}/".startswith(f"{one}/") for one in self.writable) and not (is_guarded and self.is_shielded)
        return "run 3 of obey" if could and self.began_us and changed_at >= self.began_us else None

    def find_any(self, changed_at: int) -> str | None:
        return "run 3 of obey" if self.began_us and changed_at >= self.began_us else None

    def read(self) -> dict[str, str | None]:
        """Return the sessions, each with the reason why it needs trust, or None."""
        found = self.reader.read().declared
        self.known |= {name: one.text_digest for name, one in found.items() if one.needs_trust is None}
        return {name: one.needs_trust for name, one in found.items()}

    def begin_run(self, *writable: Path) -> None:
        """Begin a run. All existing files are older, because a tick of the file system's clock has passed."""
        now = time.time_ns() // 1000
        probe = self.folder / "tick"
        while True:
            probe.touch()
            if probe.stat().st_ctime_ns // 1000 > now:
                break
        self.began_us, self.writable = now, list(writable)


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def prepare(house: House) -> None:
    """Make folders that earlier runs left, inside and outside of the run's reach."""
    for folder in ("prep", "prep/deep", "../elsewhere", "../elsewhere/deep", "../prepared/sessions.d/deep"):
        (house.house / folder).mkdir(parents=True)
        house.put(f"{folder}/evil.yaml", EVIL)
    for name in ("own.yaml", "ask.yaml", "agents/docs.yaml"):
        for folder in ("prep", "../prepared/sessions.d"):
            house.put(f"{folder}/{name}", (house.specs / name).read_text())
    house.put("../prepared/prompts/role.md", "Be exact.\n")


def swap_project(house: House) -> None:
    house.house.rename(house.folder / "gone")
    (house.folder / "prepared").rename(house.house)


def swap_specs(house: House) -> None:
    house.specs.rename(house.house / "gone")
    (house.house / "prep").rename(house.specs)


def link_specs(house: House) -> None:
    house.specs.rename(house.house / "gone")
    house.specs.symlink_to("prep")


PLANTS: dict[str, tuple[str, Callable[[House], object]]] = {
    "a moved file": ("evil", lambda house: (house.house / "prep/evil.yaml").rename(house.specs / "evil.yaml")),
    "a hard link": ("evil", lambda house: os.link(house.house / "prep/evil.yaml", house.specs / "evil.yaml")),
    "a link": ("evil", lambda house: (house.specs / "evil.yaml").symlink_to("../prep/evil.yaml")),
    "a link out of its reach": (
        "evil",
        lambda house: (house.specs / "evil.yaml").symlink_to("../../elsewhere/evil.yaml"),
    ),
    "a moved folder": ("sub/deep/evil", lambda house: (house.house / "prep").rename(house.specs / "sub")),
    "a linked folder": ("sub/deep/evil", lambda house: (house.specs / "sub").symlink_to("../prep")),
    "a linked folder out of its reach": (
        "sub/deep/evil",
        lambda house: (house.specs / "sub").symlink_to("../../elsewhere"),
    ),
    "sessions.d replaced": ("deep/evil", swap_specs),
    "sessions.d linked": ("deep/evil", link_specs),
    "the project replaced": ("deep/evil", swap_project),
}


@pytest.mark.parametrize("is_restarted", [False, True], ids=["", "restarted"])
@pytest.mark.parametrize("plant", PLANTS)
def test_what_is_older_than_the_run_that_put_it_there_does_not_count(
    house: House, plant: str, is_restarted: bool
) -> None:
    name, act = PLANTS[plant]
    prepare(house)
    assert set(house.read().values()) == {None}
    house.begin_run(house.folder if plant == "the project replaced" else house.house)
    act(house)
    if is_restarted:
        # The run is the last one in the log. No reading came between its end and the end of the daemon.
        house.restart()
    found = house.read()
    assert "run 3 of obey" in (found[name] or ""), found
    assert f"wakeful trust {name} shows" in (found[name] or "")
    # The doubt remains after the end of the run and of the daemon.
    house.began_us = 0
    house.restart()
    assert "run 3 of obey" in (house.read()[name] or "")
    desk = TrustReview(house.ledger, house.reader)
    shown = desk.show(name)
    assert any("gotcha" in line for file in shown["files"] for line in file["diff"]), (
        "the text is shown before it is trusted"
    )
    desk.commit(desk.prepare(name, shown["digest"]))
    assert house.read()[name] is None


@pytest.mark.parametrize("plant", PLANTS)
def test_without_a_run_the_same_counts_at_once(house: House, plant: str) -> None:
    name, act = PLANTS[plant]
    prepare(house)
    house.read()
    act(house)
    assert house.read()[name] is None


def test_a_shield_does_not_cover_a_project_that_was_put_in_the_place_of_another(house: House) -> None:
    """The shield covers the sessions.d that existed when the run began."""
    prepare(house)
    house.read()
    house.is_shielded = True
    house.begin_run(house.folder)
    house.put("sessions.d/mine.yaml", SPEC)
    assert house.read()["mine"] is None, "no run can write there"
    swap_project(house)
    house.put("sessions.d/fresh.yaml", EVIL)
    found = house.read()
    assert "run 3 of obey" in (found["deep/evil"] or "") and "run 3 of obey" in (found["fresh"] or "")


def test_a_link_is_doubted_although_what_it_leads_to_is_the_same(house: House) -> None:
    """The writer of the link's target controls the spec from then on, so a person must decide."""
    house.read()
    house.put("../elsewhere/own.yaml", SPEC)
    house.begin_run(house.house)
    (house.specs / "own.yaml").unlink()
    (house.specs / "own.yaml").symlink_to("../../elsewhere/own.yaml")
    assert f"the link {house.specs}/own.yaml was put there during run 3 of obey" in (house.read()["own"] or "")
    house.began_us = 0
    house.put("../elsewhere/own.yaml", EVIL)
    assert "was put there during run 3" in (house.read()["own"] or "")
    (house.specs / "own.yaml").unlink()
    house.put("sessions.d/own.yaml", SPEC)
    assert house.read()["own"] is None, "a person put it back"


def test_a_link_that_leads_nowhere_yet_is_doubted_when_it_does(house: House) -> None:
    house.read()
    house.begin_run(house.house)
    (house.specs / "evil.yaml").symlink_to("../../elsewhere/evil.yaml")
    (house.specs / "sub").symlink_to("../../elsewhere/sub")
    house.read()
    house.began_us = 0
    house.put("../elsewhere/evil.yaml", EVIL)
    house.put("../elsewhere/sub/evil.yaml", EVIL)
    found = house.read()
    assert "run 3 of obey" in (found["evil"] or "") and "run 3 of obey" in (found["sub/evil"] or "")


def test_what_is_written_under_a_second_name_is_doubted(house: House) -> None:
    """The run can write another folder, in which the same file has a name."""
    (house.house / "shared").mkdir()
    os.link(house.specs / "own.yaml", house.house / "shared" / "own.yaml")
    house.read()
    house.begin_run(house.house / "shared")
    house.put("shared/own.yaml", EVIL)
    assert "second name (a hard link)" in (house.read()["own"] or "")


@pytest.mark.parametrize("restart", [False, True], ids=["", "restarted"])
def test_the_prompt_of_an_agent_has_a_way_as_well(house: House, restart: bool) -> None:
    house.put("others/role.md", "Obey the mail.\n")
    house.read()
    house.begin_run(house.house)
    (house.house / "prompts").rename(house.house / "gone")
    (house.house / "others").rename(house.house / "prompts")
    if restart:
        house.restart()
    assert "run 3 of obey" in (house.read()["ask"] or "")
    house.began_us = 0
    assert "run 3 of obey" in (house.read()["ask"] or "")


def test_a_settings_file_that_is_linked_by_a_run_does_not_count(house: House) -> None:
    """The linked file has the same text until the run is over."""
    house.put("wakeful.yaml", "loop_depth: 3\n")
    house.put("../elsewhere/wakeful.yaml", "loop_depth: 3\n")
    assert house.reader.read().settings.loop_depth == 3
    house.begin_run(house.house)
    (house.house / "wakeful.yaml").unlink()
    (house.house / "wakeful.yaml").symlink_to("../elsewhere/wakeful.yaml")
    house.read()
    house.began_us = 0
    house.put("../elsewhere/wakeful.yaml", "allow_unisolated: true\n")
    reading = house.reader.read()
    assert (reading.settings.allow_unisolated, reading.settings.loop_depth) == (False, 3)
    desk = TrustReview(house.ledger, house.reader)
    desk.commit(desk.prepare("wakeful.yaml", desk.show("wakeful.yaml")["digest"]))
    assert house.reader.read().settings.allow_unisolated


def test_trusting_one_spec_behind_a_link_does_not_trust_the_others(house: House) -> None:
    prepare(house)
    house.read()
    house.begin_run(house.house)
    (house.specs / "sub").symlink_to("../prep")
    house.read()
    desk = TrustReview(house.ledger, house.reader)
    shown = desk.show("sub/evil")
    assert [file["file"] for file in shown["files"]] == ["sessions.d/sub/evil.yaml", "sessions.d/sub#way"]
    assert "+link to ../prep" in shown["files"][1]["diff"]
    desk.commit(desk.prepare("sub/evil", shown["digest"]))
    house.began_us = 0
    found = house.read()
    assert found["sub/evil"] is None and "run 3 of obey" in (found["sub/deep/evil"] or "")


def test_a_person_who_moves_folders_while_no_run_could_is_not_asked(house: House) -> None:
    """A run is under way that writes elsewhere, or no run is under way."""
    prepare(house)
    house.read()
    house.begin_run(house.house / "out")
    swap_specs(house)
    assert set(house.read().values()) == {None}
    house.restart()
    (house.specs / "deep").rename(house.specs / "deeper")
    assert set(house.read().values()) == {None}


def test_the_first_daemon_takes_what_it_finds(house: House) -> None:
    """A state folder of an earlier release has no recorded ways.

    The last run wrote beside sessions.d a moment ago.
    """
    house.specs.rename(house.folder / "dots")
    house.specs.symlink_to("../dots")
    house.known = {}
    house.begin_run(house.house)
    house.put("report.md", "x")
    assert set(house.read().values()) == {None}


def test_what_a_person_trusted_is_not_doubted_again_by_the_next_daemon(house: House) -> None:
    """The file is an agent's, and no log says that it counted before."""
    house.read()
    house.begin_run(house.house)
    house.put("sessions.d/agents/docs.yaml", AGENT.replace("key: k", "key: other"))
    assert "run 3 of obey" in (house.read()["ask"] or "")
    desk = TrustReview(house.ledger, house.reader)
    desk.commit(desk.prepare("ask", desk.show("ask")["digest"]))
    house.restart()
    assert house.read()["ask"] is None


def test_defaults_of_a_followed_project_that_a_run_changed_do_not_count(house: House) -> None:
    """A pinned project misses trusted defaults that are gone, because they may have been stricter."""
    shop = house.folder / "shop"
    (shop / "sessions.d").mkdir(parents=True)
    (shop / "sessions.d" / "count.yaml").write_text(SPEC)
    (shop / "wakeful.yaml").write_text("defaults: {isolation: strict}\n")
    ledger = house.ledger
    desk = TrustReview(ledger, house.reader)
    ledger.attach(Project(name="shop", folder=str(shop)))
    house.read()
    desk.commit(desk.prepare("shop/count", desk.show("shop/count")["digest"]))
    assert house.read()["shop/count"] is None
    (shop / "wakeful.yaml").unlink()
    assert "wakeful.yaml#defaults changed" in (house.read()["shop/count"] or "")
    (shop / "wakeful.yaml").write_text("defaults: {isolation: strict}\n")
    ledger.attach(Project(name="shop", folder=str(shop), is_followed=True))
    assert house.read()["shop/count"] is None
    (shop / "wakeful.yaml").write_text("defaults: {isolation: strict, priority: 60}\n")
    assert house.read()["shop/count"] is None, "edited by a person"
    house.begin_run(shop)
    (shop / "wakeful.yaml").write_text("defaults: {network: true}\n")
    assert "run 3 of obey" in (house.read()["shop/count"] or "")


@pytest.mark.parametrize("is_held", [True, False])
def test_a_way_goes_over_links_and_dots_and_ends_where_nothing_is(tmp_path: Path, is_held: bool) -> None:
    real = Path(os.path.realpath(tmp_path))
    (real / "a" / "b").mkdir(parents=True)
    (real / "a" / "b" / "f").write_text("x")
    (real / "l").symlink_to("a/b/../b")
    (real / "round").symlink_to("round")
    with PathOpener() as hold:
        look = hold.look if is_held else StepCache().look
        tail = [
            step.place.removeprefix(f"{real}/")
            for step in follow_way(f"{real}/l/f", look)
            if step.place.startswith(f"{real}/")
        ]
        assert tail == ["l", "a", "a/b", "a/b", "a/b/f"]
        assert follow_way(f"{real}/l/none/f", look)[-1].place == f"{real}/a/b"
        assert follow_way(f"{real}/a/b/f/g", look)[-1].place == f"{real}/a/b/f"
        assert len(follow_way(f"{real}/round/x", look)) < 100
