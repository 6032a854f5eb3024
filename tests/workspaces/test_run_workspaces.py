"""The workspace of one run: the files that are copied into it, and the outputs that are collected from it."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import pytest
from msgspec.structs import replace

from wakeful.core.spec.bindings import CommitsBinding, FileBinding
from wakeful.core.spec.session import CommandRun, Confinement, RunLimits, ScriptRun, SessionSpec
from wakeful.errors import OperatorError, WakefulError
from wakeful.run_files.replay_folder import redirect
from wakeful.runners.outputs.landing import Bounds, put_in_place, remove_area
from wakeful.runners.outputs.staging import digest_entry
from wakeful.runners.outputs.workspace_outputs import WorkspaceArea
from wakeful.sources.git.checkouts import Checkouts
from wakeful.workspaces.run_workspaces import RunPlace, RunPlaces

RUN = "s.1"


class Site:
    """A root with an input and an output, a state folder, and a spec that binds them."""

    def __init__(self, folder: Path) -> None:
        self.root, self.state = folder / "root", folder / "state"
        self.state.mkdir()
        self.write("in.txt", "in")
        self.write("out/a.txt", "old")
        bindings = (
            FileBinding(name="i", pattern="in.txt"),
            FileBinding(name="o", pattern="out/**", access="write", exclude=("*.log",)),
        )
        self.spec = SessionSpec(
            name="s", root=str(self.root), bindings=bindings, run=ScriptRun(text="true", workspace="copy")
        )

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    async def make(self) -> tuple[RunPlace, WorkspaceArea, Path]:
        place = await RunPlaces(str(self.state), f"{self.state}/staged", Checkouts()).make(self.spec, RUN)
        area = WorkspaceArea(f"{self.state}/staged/{RUN}", place.spec.root, place.order)
        return place, area, Path(place.spec.root)

    def land(self, area: WorkspaceArea) -> dict[str, str]:
        outputs, _ = area.collect()
        kept = put_in_place(
            outputs, str(self.root), f"{self.state}/staged/{RUN}", f"{self.state}/aside", Bounds.of(self.spec, ())
        )
        return {one.path: one.words for one in kept}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.mark.asyncio
async def test_only_what_the_run_changed_of_its_outputs_is_collected(site: Site) -> None:
    """New, changed and removed outputs are collected.

    Outputs rewritten with the same content, excluded files and inputs are not.
    """
    site.write("out/same.txt", "same")
    site.write("out/gone.txt", "gone")
    _, area, root = await site.make()
    area.take_stock()
    (root / "out/a.txt").write_text("new")
    (root / "out/same.txt").write_text("same")
    (root / "out/gone.txt").unlink()
    (root / "out/deep").mkdir()
    (root / "out/deep/b.txt").write_text("b")
    (root / "out/x.log").write_text("excluded")
    (root / "in.txt").write_text("changed")
    outputs, undeclared = area.collect()
    found = {one.path: (one.base is not None, one.new is not None) for one in outputs}
    assert found == {"out/a.txt": (True, True), "out/gone.txt": (True, False), "out/deep/b.txt": (False, True)}
    assert undeclared == ("in.txt", "out/x.log")


@pytest.mark.asyncio
async def test_an_edit_while_the_place_was_made_is_a_conflict(site: Site) -> None:
    """The base is the file that the run was given, even if the project has another version by then."""
    _, area, root = await site.make()
    site.write("out/a.txt", "theirs")
    area.take_stock()
    (root / "out/a.txt").write_text("ours")
    assert "that version stays" in site.land(area)["out/a.txt"] and (site.root / "out/a.txt").read_text() == "theirs"


@pytest.mark.asyncio
async def test_what_was_removed_while_the_place_was_made_is_not_made_anew(site: Site) -> None:
    """A run that does not touch the output has not written it."""
    _, area, root = await site.make()
    (site.root / "out/a.txt").unlink()
    area.take_stock()
    assert not (root / "out/a.txt").exists() and area.collect() == ((), ())


@pytest.mark.asyncio
async def test_a_link_out_of_root_is_copied_only_where_it_may_be_read(site: Site, tmp_path: Path) -> None:
    """An output that was such a link is replaced. The run's content is not written through the link."""
    outside = tmp_path / "outside.txt"
    outside.write_text("outside")
    (site.root / "out/link").symlink_to(outside)
    _, _, root = await site.make()
    assert not os.path.lexists(root / "out/link")
    remove_area(f"{site.state}/staged/{RUN}")
    site.spec = replace(site.spec, confinement=Confinement(allow_read=(str(outside),)))
    _, area, root = await site.make()
    area.take_stock()
    assert (root / "out/link").read_text() == "outside" and not (root / "out/link").is_symlink()
    (root / "out/link").write_text("new")
    assert site.land(area) == {} and outside.read_text() == "outside"
    assert (site.root / "out/link").read_text() == "new" and not (site.root / "out/link").is_symlink()


@pytest.mark.asyncio
async def test_a_folder_that_is_a_link_is_refused_with_words(site: Site, tmp_path: Path) -> None:
    """A run without a workspace could have put the link there, so nothing behind it is copied."""
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_text("key")
    (site.root / "data").symlink_to(tmp_path / "secret")
    site.spec = replace(site.spec, bindings=(FileBinding(name="d", pattern="data/*"),))
    with pytest.raises(OperatorError, match="name its target"):
        await site.make()
    assert not list((site.state / "staged").rglob("key"))


@pytest.mark.asyncio
async def test_programs_that_the_command_names_come_along(site: Site) -> None:
    """No other file of root is copied."""
    for name in ("tool.py", "lib/check.sh", "other.py"):
        site.write(name, "x")
    site.spec = replace(
        site.spec,
        run=CommandRun(argv=("python3", "tool.py", "../tool.py"), check=("sh", "lib/check.sh"), workspace="copy"),
    )
    _, _, root = await site.make()
    assert sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()) == [
        "in.txt",
        "lib/check.sh",
        "out/a.txt",
        "tool.py",
    ]


@pytest.mark.asyncio
async def test_mentions_of_root_lead_into_the_place_and_limits_stay(site: Site) -> None:
    """The command, the check, the environment and the working folder name the workspace.

    The limits and grants are unchanged.
    """
    limits = RunLimits(memory_bytes=1 << 30)
    real = str(site.root)
    run = CommandRun(
        argv=(f"{real}/out/x", f"{real}-other"),
        check=(real,),
        env={"P": f"{real}/in.txt:/usr"},
        cwd=f"{real}/out",
        limits=limits,
        workspace="copy",
    )
    site.spec = replace(site.spec, run=run, confinement=Confinement(allow_read=("lib",)))
    place, _, root = await site.make()
    moved = place.spec.run
    assert isinstance(moved, CommandRun)
    assert (moved.argv, moved.check, moved.env, moved.cwd) == (
        (f"{root}/out/x", f"{real}-other"),
        (str(root),),
        {"P": f"{root}/in.txt:/usr"},
        f"{root}/out",
    )
    assert moved.limits == limits and place.spec.confinement.allow_read == (f"{real}/lib",)


def test_a_replay_and_a_fork_keep_the_limits_of_the_run(tmp_path: Path) -> None:
    """A run in another root may not use more."""
    spec = SessionSpec(name="s", root="/project", run=ScriptRun(text="cat /project/x", limits=RunLimits(processes=3)))
    moved, other = redirect(spec, str(tmp_path), None), redirect(spec, str(tmp_path), ("echo", "/project/y"))
    assert moved.run == ScriptRun(text=f"cat {tmp_path}/x", limits=RunLimits(processes=3))
    assert other.run == CommandRun(argv=("echo", f"{tmp_path}/y"), limits=RunLimits(processes=3))


@pytest.mark.asyncio
async def test_a_copy_asks_for_commits_where_they_are_and_a_worktree_has_its_own(site: Site) -> None:
    """A worktree has the branches that bindings name."""
    git = ["git", "-c", "user.name=A", "-c", "user.email=a@example.org", "-C", str(site.root)]
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-qm", "one"], ["branch", "side"]):
        subprocess.run([*git, *words], check=True)
    bindings = (*site.spec.bindings, CommitsBinding(name="c", path="out", branch="side"))
    site.spec = replace(site.spec, bindings=bindings)
    place, _, _ = await site.make()
    assert [one.repo for one in place.spec.bindings if isinstance(one, CommitsBinding)] == [str(site.root)]
    remove_area(f"{site.state}/staged/{RUN}")
    site.spec = replace(site.spec, run=ScriptRun(text="true", workspace="worktree"))
    place, area, root = await site.make()
    assert [one.repo for one in place.spec.bindings if isinstance(one, CommitsBinding)] == [None]
    own = subprocess.run(
        ["git", "-C", str(root), "rev-parse", "side", "HEAD"], check=True, capture_output=True, text=True
    ).stdout.split()
    assert own == [place.order.commit] * 2 and place.order.borrowed == (f"{site.root}/.git/objects",)
    area.take_stock()
    assert area.collect() == ((), ())


@pytest.mark.asyncio
async def test_a_head_that_a_run_spoiled_is_not_believed(site: Site) -> None:
    """A pipe, a link or nonsense in HEAD does not block the daemon, and nothing is read behind it."""
    git = ["git", "-c", "user.name=A", "-c", "user.email=a@example.org", "-C", str(site.root)]
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-qm", "one"]):
        subprocess.run([*git, *words], check=True)
    site.spec = replace(site.spec, run=ScriptRun(text="true", workspace="worktree"))
    _, area, root = await site.make()
    area.take_stock()
    head = root / ".git/HEAD"
    head.unlink()
    for spoil in (
        lambda: os.mkfifo(head),
        lambda: head.symlink_to("/etc/passwd"),
        lambda: head.write_text("ref: refs/heads/../../../../x"),
        lambda: head.mkdir(),
    ):
        spoil()
        assert area.collect() == ((), ())
        head.rmdir() if head.is_dir() and not head.is_symlink() else head.unlink()


@pytest.mark.asyncio
async def test_what_cannot_be_made_is_refused_and_leaves_the_real_files_alone(site: Site, tmp_path: Path) -> None:
    """Two cases: an output outside of root, which a spec file may not have, and a worktree without a repository."""
    spec = site.spec
    site.spec = replace(spec, bindings=(FileBinding(name="o", pattern="../beside/x", access="write"),))
    with pytest.raises(WakefulError, match="outside of the workspace"):
        await site.make()
    assert not (tmp_path / "beside").exists() and not list((site.state / "staged").rglob("beside"))
    site.spec = spec
    remove_area(f"{site.state}/staged/{RUN}")
    site.spec = replace(site.spec, run=ScriptRun(text="true", workspace="worktree"))
    with pytest.raises(WakefulError, match="needs a git repository"):
        await site.make()
    assert (site.root / "out/a.txt").read_text() == "old"


def test_an_area_whose_folders_were_shut_is_removed_and_links_in_it_are_not_followed() -> None:
    """A daemon that is not root can do this, too."""
    with tempfile.TemporaryDirectory(prefix="wakeful-test-") as folder:
        os.chmod(folder, 0o755)
        area, kept = Path(folder, "areas/s.1"), Path(folder, "kept")
        (area / "a/b").mkdir(parents=True)
        kept.mkdir()
        (kept / "x").write_text("x")
        (area / "a/link").symlink_to(kept)
        (area / "a/b/x").write_text("x")
        for path in (area / "a/b", area / "a", area):
            path.chmod(0)
        if os.geteuid() == 0:
            for path in (area.parent, area, area / "a", area / "a/b", area / "a/b/x", kept):
                os.lchown(path, 65534, 65534)
        child = os.fork()
        if child == 0:
            if os.geteuid() == 0:
                os.setuid(65534)
            remove_area(str(area))
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert not area.exists() and (kept / "x").exists() and kept.stat().st_mode & 0o777 == 0o755


@pytest.mark.asyncio
async def test_what_no_run_may_read_is_not_copied_for_one(site: Site, tmp_path: Path) -> None:
    """The daemon itself is not confined. So a binding that covers its secrets is refused, also by another path."""
    site.write("secrets/gh", "SECRET")
    (tmp_path / "way").symlink_to(site.root)
    site.spec = replace(site.spec, bindings=(FileBinding(name="s", pattern="**"),))
    with pytest.raises(WakefulError, match="belongs to the daemon"):
        await RunPlaces(str(site.state), f"{site.state}/staged", Checkouts(), (str(tmp_path / "way/secrets"),)).make(
            site.spec, RUN
        )
    assert not list((site.state / "staged").rglob("gh"))


@pytest.mark.asyncio
async def test_the_digest_of_an_output_is_that_of_the_real_one(site: Site) -> None:
    """Landing compares the digests of both files, so they must be computed in the same way."""
    _, area, root = await site.make()
    area.take_stock()
    (root / "out/a.txt").write_text("new")
    [output], _ = area.collect()
    assert output.base == digest_entry(str(site.root / "out/a.txt"), None)
    assert Path(f"{site.state}/staged/{RUN}", output.place).read_text() == "new"
