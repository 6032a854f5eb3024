"""A merge compares the three versions of each file, one by one.

The tests cover which files are taken or kept, and that the merge's record is enough to carry it out and to undo it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from wakeful.core.spec.bindings import FileBinding
from wakeful.core.spec.session import CommandRun, SessionSpec
from wakeful.errors import CallerError
from wakeful.run_files.restore import carry_out, plan_restore
from wakeful.sources.git.checkouts import Checkouts
from wakeful.system.blobs import Blobs
from wakeful.workspaces import contents as base
from wakeful.workspaces import copy as copying
from wakeful.workspaces.contents import find_meant, keep_base
from wakeful.workspaces.copy import copy_present
from wakeful.workspaces.merge import Plan, Sides, plan_merge, read_merge, write_merge
from wakeful.workspaces.moved_spec import move_spec

ODD_NAME = os.fsdecode(b"caf\xe9")


class Pair:
    """A parent's root and its fork's root, with the same files at the start."""

    def __init__(self, folder: Path, **files: str | bytes) -> None:
        self.ours, self.theirs, self.marks = folder / "ours", folder / "theirs", folder / "marks"
        self.ours.mkdir()
        self.spec = SessionSpec(
            name="a", root=str(self.ours), bindings=(FileBinding(name="out", pattern="**", access="write"),)
        )
        self.blobs = Blobs(str(folder / "blobs"))
        for name, content in files.items():
            (self.ours / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        copy_present(self.spec, str(self.theirs), "")
        self.is_meant = find_meant(self.spec, str(self.theirs))
        self.base = keep_base(self.blobs, str(self.theirs), self.is_meant)

    async def plan(self, *, is_dry: bool = False) -> Plan:
        sides = Sides(
            ours=str(self.ours),
            theirs=str(self.theirs),
            name="a",
            fork="b",
            marks=str(self.marks),
            is_meant=self.is_meant,
        )
        return await plan_merge(self.blobs, Checkouts(), sides, self.base, is_dry=is_dry)


@pytest.mark.asyncio
async def test_names_that_are_no_text_links_and_x_bits_come_back_and_are_undone(tmp_path: Path) -> None:
    pair = Pair(tmp_path, run="one\n", same="same\n")
    (pair.theirs / ODD_NAME).write_text("odd\n")
    (pair.theirs / "link").symlink_to("same")
    (pair.theirs / "run").chmod(0o755)
    plan = await pair.plan()
    assert plan.words() == {"caf\\xe9": "taken", "link": "taken", "run": "taken"} and plan.record is not None
    record = read_merge(pair.blobs, plan.record)
    assert write_merge(pair.blobs, record) == [] and write_merge(pair.blobs, record) == []
    assert (
        (pair.ours / ODD_NAME).read_text() == "odd\n"
        and os.readlink(pair.ours / "link") == "same"
        and os.access(pair.ours / "run", os.X_OK)
    )
    done = carry_out(pair.blobs, plan_restore(pair.blobs, str(pair.ours), [("the merge of b", plan.record)]))
    assert [(one.path, one.ending) for one in done] == [
        ("caf\\xe9", "removed"),
        ("link", "removed"),
        ("run", "restored"),
    ]
    assert sorted(os.listdir(pair.ours)) == ["run", "same"] and not os.access(pair.ours / "run", os.X_OK)


@pytest.mark.asyncio
async def test_a_dry_run_keeps_nothing_and_says_the_same(tmp_path: Path) -> None:
    pair = Pair(tmp_path, a="1\n2\n3\n4\n5\n6\n7\n", b="one\n")
    (pair.theirs / "a").write_text("1\n2\n3\n4\n5\n6\nseven\n")
    (pair.ours / "a").write_text("eins\n2\n3\n4\n5\n6\n7\n")
    (pair.theirs / "b").write_text("two\n")
    (pair.ours / "b").write_text("three\n")
    before = sorted(pair.blobs.listing())
    preview = await pair.plan(is_dry=True)
    assert sorted(pair.blobs.listing()) == before and not pair.marks.exists()
    plan = await pair.plan()
    assert preview == plan and {path: words.partition(":")[0] for path, words in plan.words().items()} == {
        "a": "merged",
        "b": "conflict",
    }


@pytest.mark.asyncio
async def test_what_changes_between_plan_and_deed_stays(tmp_path: Path) -> None:
    """A file is changed, and a folder becomes a link. Both are reported, and nothing is written there."""
    pair = Pair(tmp_path, a="one\n", b="one\n")
    (pair.theirs / "a").write_text("two\n")
    (pair.theirs / "deep").mkdir()
    (pair.theirs / "deep/c").write_text("new\n")
    plan = await pair.plan()
    (pair.ours / "a").write_text("just now\n")
    (tmp_path / "elsewhere").mkdir()
    (pair.ours / "deep").symlink_to(tmp_path / "elsewhere")
    assert plan.record is not None
    failed = write_merge(pair.blobs, read_merge(pair.blobs, plan.record))
    assert [(one["path"], one["ending"]) for one in failed] == [("a", "refused"), ("deep/c", "failed")]
    assert (pair.ours / "a").read_text() == "just now\n" and os.listdir(tmp_path / "elsewhere") == []


@pytest.mark.asyncio
async def test_what_is_too_large_to_keep_stays_in_the_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wakeful.workspaces.merge.LARGEST_KEPT_BYTES", 10)
    pair = Pair(tmp_path, a="one\n")
    (pair.theirs / "a").write_text("x" * 11)
    plan = await pair.plan()
    assert plan.record is None and "too large (11 bytes); copy it from" in plan.words()["a"]


def test_too_much_to_copy_is_refused_with_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "MOST_FILES", 1)
    with pytest.raises(CallerError, match="mean 2 files with 8 bytes"):
        Pair(tmp_path, a="one\n", b="two\n")


def test_too_much_to_compare_is_refused_with_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "MOST_FILES", 1)
    with pytest.raises(CallerError, match="more than 1 files"):
        Pair(tmp_path, a="one\n", b="two\n")


def test_a_spec_is_moved_with_all_that_leads_to_its_root() -> None:
    """Patterns, excludes, command, environment and folder move.

    Inputs outside of root stay, and outputs outside of it are left out.
    """
    run = CommandRun(argv=("sh", "/p/x.sh", "/prod/y"), cwd="/p/sub", env={"OUT": "/p/out:/q"})
    bindings = (
        FileBinding(name="in", pattern="/p/data/*", exclude=("/p/data/old/", "*.bak")),
        FileBinding(name="near", pattern="../shared/*", exclude=("../shared/old/x",)),
        FileBinding(name="out", pattern="out/**", access="write"),
        FileBinding(name="far", pattern="../far.txt", access="write"),
    )
    moved = move_spec(SessionSpec(name="a", root="/p", bindings=bindings, run=run), "/w")
    told = {binding.name: (binding.pattern, binding.exclude) for binding in moved.spec.files}
    assert told == {
        "in": ("data/*", ("data/old/", "*.bak")),
        "near": ("/shared/*", ("/shared/old/x",)),
        "out": ("out/**", ()),
    }
    assert moved.detached == ("far",) and moved.spec.root == "/w"
    assert moved.spec.run == CommandRun(argv=("sh", "/w/x.sh", "/prod/y"), cwd="/w/sub", env={"OUT": "/w/out:/q"})
    assert moved.identities[bindings[0].identity] == "file data/* content !data/old/ !*.bak"
