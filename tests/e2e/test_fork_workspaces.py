"""Forks with a workspace: checkouts beside real repositories, and files that are merged three ways and undone."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest

from e2e.box import Box
from git_repository import git_without_hooks as git

# Run by `make test-long`, because each of its tests starts a daemon.
pytestmark = pytest.mark.long

SUMMING = """
    root: {root}
    objective: Sum up.
    bindings:
      data: {{file: "data/*.txt", settle: 10ms}}
      out:  {{file: "out/**", access: write}}
    run: {{command: [sh, -c, 'mkdir -p out; cat data/*.txt > out/sum.txt'], retries: 0}}
"""


def listing(folder: Path) -> dict[str, bytes]:
    """Return every file of a folder with its content, to tell whether anything at all was written there."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


def start(box: Box, *, has_repository: bool, inside: str = "") -> Path:
    """Start a project with one session, and wait until it rests after its first run.

    A repository has uncommitted changes, too.
    """
    project = box.folder / "project"
    root = project / inside
    box.write(f"project/{inside}/data/a.txt", "one\n")
    box.write(f"project/{inside}/data/gone.txt", "")
    box.write("project/README", "read me\n")
    if has_repository:
        git(project, "init", "-q")
        git(project, "add", "-A")
        git(project, "commit", "-qm", "first")
        (root / "data/gone.txt").unlink()
        box.write(f"project/{inside}/data/a.txt", "one, not committed\n")
        box.write(f"project/{inside}/data/b.txt", "two, unknown to git\n")
    box.spec("sum", SUMMING.format(root=root))
    box.start()
    box.wait_at_rest("sum", runs=1)
    return root


def fork(box: Box, *arguments: str) -> Path:
    """Fork the session with a workspace. Return the fork's root."""
    box.ask("fork", "sum", "--as", "trial", "--workspace", *arguments)
    return Path(box.json("show", "trial")["root"])


def files_of(answer: dict) -> dict[str, str]:
    return {file["path"]: file["ending"] for file in answer["files"]}


@pytest.mark.parametrize("inside", ["", "part"])
def test_a_workspace_is_a_checkout_with_what_the_parent_sees_now(box: Box, inside: str) -> None:
    """It has the commit of HEAD, with uncommitted changes of bound files.

    The fork's root is where it is in the repository. Nothing in the repository changes.
    """
    root = start(box, has_repository=True, inside=inside)
    before = listing(box.folder / "project" / ".git")
    place = fork(box)
    workspace = Path(box.json("show", "trial")["workspace"])
    assert workspace.parent == box.state / "workspaces" and place == workspace / inside
    assert str(workspace) in box.words("show", "trial").replace(" ", "")
    assert (workspace / "README").read_text() == "read me\n"
    assert (
        listing(place / "data") == listing(root / "data")
        and (place / "out/sum.txt").read_text() == (root / "out/sum.txt").read_text()
    )
    assert git(workspace, "rev-parse", "HEAD") == git(box.folder / "project", "rev-parse", "HEAD")
    assert git(workspace, "symbolic-ref", "HEAD") == "refs/heads/main"
    assert listing(box.folder / "project" / ".git") == before


def test_a_fork_works_in_its_workspace_and_wakes_there(box: Box) -> None:
    """Its runs write there and not at its parent's. Its own inputs wake it, and its parent's do not."""
    root = start(box, has_repository=True)
    place = fork(box)
    sum_before = (root / "out/sum.txt").read_text()
    assert box.run("activate", "trial", "--wait").returncode == 0
    box.write(f"{place.relative_to(box.folder)}/data/a.txt", "changed in the fork\n")
    box.wait_at_rest("trial", runs=2)
    assert "changed in the fork" in (place / "out/sum.txt").read_text()
    assert (root / "out/sum.txt").read_text() == sum_before and box.row("sum")["runs"] == 1
    box.write("project/data/a.txt", "changed at the parent\n")
    box.wait_at_rest("sum", runs=2)
    assert box.row("trial")["runs"] == 2


def test_a_broad_pattern_of_the_parent_does_not_see_workspaces(box: Box) -> None:
    """This holds even if the state folder lies inside its root."""
    box.write("in.md", "1\n")
    box.spec(
        "wide", "objective: See all.\nbindings: {all: {file: '**/*.md', settle: 10ms}}\nrun: {command: ['true']}\n"
    )
    box.start()
    box.wait_at_rest("wide", runs=1)
    box.ask("fork", "wide", "--as", "trial", "--workspace")
    place = Path(box.json("show", "trial")["root"])
    assert (place / "in.md").read_text() == "1\n" and not (place / "state").exists()
    box.ask("activate", "trial", "--wait")
    (place / "in.md").write_text("2\n")
    (place / "deep").mkdir()
    (place / "deep/new.md").write_text("3\n")
    box.wait_at_rest("trial", runs=2)
    assert box.wait_at_rest("wide")["runs"] == 1


def test_without_a_repository_a_workspace_holds_copies(box: Box) -> None:
    """It has copies of the bound files and of the program, and nothing else."""
    project = box.folder / "project"
    box.write("project/data/a.txt", "one\n")
    box.write("project/private.txt", "not bound\n")
    box.write("project/work.sh", "mkdir -p out; cat data/*.txt > out/sum.txt\n")
    (project / "data/link.txt").symlink_to("a.txt")
    (project / "data/outside.txt").symlink_to(box.write("elsewhere.txt", "from outside\n"))
    box.spec(
        "sum",
        SUMMING.format(root=project).replace("[sh, -c, 'mkdir -p out; cat data/*.txt > out/sum.txt']", "[sh, work.sh]"),
    )
    box.start()
    box.wait_at_rest("sum", runs=1)
    place = fork(box, str(box.folder / "my place"))
    assert place == box.folder / "my place"
    assert sorted(str(path.relative_to(place)) for path in place.rglob("*") if not path.is_dir()) == [
        "data/a.txt", "data/link.txt", "data/outside.txt", "out/sum.txt", "work.sh",
    ]  # fmt: skip
    assert os.readlink(place / "data/link.txt") == "a.txt" and not (place / "data/outside.txt").is_symlink()
    assert box.run("activate", "trial", "--wait").returncode == 0


def test_files_come_back_three_ways(box: Box) -> None:
    """Files are taken, added, removed, kept, merged or in conflict, after a preview.

    Files without a write binding stay where they are.
    """
    root = start(box, has_repository=True)
    base = "".join(f"line {number}\n" for number in range(12))
    for name in ("changed", "theirs-gone", "ours-only", "both", "clash", "same", "ours-gone"):
        box.write(f"project/out/{name}.txt", base)
    (root / "out/image.bin").write_bytes(b"\0base")
    place = fork(box)
    (place / "out/changed.txt").write_text("by the fork\n")
    (place / "out/theirs-gone.txt").unlink()
    (place / "out/new.txt").write_text("new\n")
    (place / "out/both.txt").write_text(base.replace("line 1\n", "line 1, fork\n"))
    (place / "out/clash.txt").write_text(base.replace("line 5\n", "fork\n"))
    (place / "out/same.txt").write_text("same\n")
    (place / "out/ours-gone.txt").write_text("changed\n")
    (place / "out/image.bin").write_bytes(b"\0fork")
    (place / "data/a.txt").write_text("an input\n")
    (root / "out/ours-only.txt").write_text("mine\n")
    (root / "out/both.txt").write_text(base.replace("line 10\n", "line 10, parent\n"))
    (root / "out/clash.txt").write_text(base.replace("line 5\n", "parent\n"))
    (root / "out/same.txt").write_text("same\n")
    (root / "out/ours-gone.txt").unlink()
    (root / "out/image.bin").write_bytes(b"\0parent")
    before, length = listing(root), len(box.log("sum"))
    preview = box.json("merge", "sum", "trial", "--dry-run")["preview"]["files"]
    assert listing(root) == before and len(box.log("sum")) == length and not (box.state / "merges").exists()
    expected = {
        "data/a.txt": "left", "out/both.txt": "merged", "out/changed.txt": "taken", "out/clash.txt": "conflict", "out/image.bin": "conflict",
        "out/new.txt": "taken", "out/ours-gone.txt": "conflict", "out/theirs-gone.txt": "removed",
    }  # fmt: skip
    assert {path: words.partition(":")[0] for path, words in preview.items()} == expected
    answer = box.json("merge", "sum", "trial")
    assert files_of(answer) == expected
    assert (root / "out/changed.txt").read_text() == "by the fork\n" and (root / "out/new.txt").read_text() == "new\n"
    both = (root / "out/both.txt").read_text()
    assert "line 1, fork\n" in both and "line 10, parent\n" in both
    assert not (root / "out/theirs-gone.txt").exists() and not (root / "out/ours-gone.txt").exists()
    assert (root / "out/clash.txt").read_text() == base.replace("line 5\n", "parent\n")
    assert (root / "out/image.bin").read_bytes() == b"\0parent" and (root / "out/ours-only.txt").read_text() == "mine\n"
    assert (root / "data/a.txt").read_text() == "one, not committed\n"
    merged = next(record for record in box.log("sum") if record["kind"] == "session_merged")
    recorded = merged["payload"]["files"] if "payload" in merged else merged["files"]
    assert {path: words.partition(":")[0] for path, words in recorded.items()} == expected
    marked = Path(recorded["out/clash.txt"].rpartition(" in ")[2])
    assert (
        marked.is_relative_to(box.state / "merges")
        and "<<<<<<<" in marked.read_text()
        and "fork\n" in marked.read_text()
    )
    # What was dealt with is the base of the next merge, which brings only what is new.
    assert "nothing new" in box.words("merge", "sum", "trial")
    (place / "out/new.txt").write_text("newer\n")
    answer = box.json("merge", "sum", "trial")
    assert (
        files_of(answer) == {"data/a.txt": "left", "out/new.txt": "taken"}
        and (root / "out/new.txt").read_text() == "newer\n"
    )


def test_a_merge_is_undone_by_rewind(box: Box) -> None:
    """The rewind includes files, and leaves alone what others changed since. The fork can be merged again."""
    root = start(box, has_repository=True)
    box.write("project/out/a.txt", "before\n")
    box.write("project/out/b.txt", "before\n")
    place = fork(box)
    (place / "out/a.txt").write_text("fork\n")
    (place / "out/b.txt").write_text("fork\n")
    (place / "out/new.txt").write_text("fork\n")
    seq = box.json("show", "sum")["seq"]
    box.ask("merge", "sum", "trial")
    (root / "out/b.txt").write_text("by a person\n")
    done = box.run("rewind", "sum", str(seq), "--files")
    assert done.returncode == 1 and "changed by others since the merge of trial" in " ".join(done.stdout.split())
    assert (root / "out/a.txt").read_text() == "before\n" and not (root / "out/new.txt").exists()
    assert (root / "out/b.txt").read_text() == "by a person\n"
    (root / "out/b.txt").write_text("before\n")
    box.ask("merge", "sum", "trial")
    assert {(root / f"out/{name}.txt").read_text() for name in ("a", "b", "new")} == {"fork\n"}


def test_a_merge_cut_short_is_finished_by_asking_again(box: Box) -> None:
    """The record is durable, and the files are not written.

    The same call writes them, and overwrites nothing of others.
    """
    root = start(box, has_repository=False)
    box.write("project/out/a.txt", "before\n")
    box.write("project/out/b.txt", "before\n")
    place = fork(box)
    (place / "out/a.txt").write_text("fork\n")
    (place / "out/b.txt").write_text("fork\n")
    box.ask("merge", "sum", "trial", "--key", "k")
    record = next(one for one in box.log("sum") if one["kind"] == "session_merged")
    address = (record["payload"] if "payload" in record else record)["record"]
    box.kill()
    # The state that a daemon leaves if it dies between the record and the files.
    (root / "out/a.txt").write_text("before\n")
    (root / "out/b.txt").write_text("by a person\n")
    (box.state / "merges" / f"{address}.unfinished").touch()
    box.start()
    assert [one["mend"] for one in box.json("doctor") if one["name"] == "merge"] == ["wakeful merge sum trial"]
    done = box.run("merge", "sum", "trial", "--key", "k", "--json")
    assert done.returncode == 1 and files_of(json.loads(done.stdout)) == {"out/a.txt": "taken", "out/b.txt": "refused"}
    assert (root / "out/a.txt").read_text() == "fork\n" and (root / "out/b.txt").read_text() == "by a person\n"
    assert (
        "files" not in box.json("merge", "sum", "trial")
        and len([1 for kind in box.kinds("sum") if kind == "session_merged"]) == 1
    )


def test_a_hostile_repository_runs_nothing(box: Box) -> None:
    """Hooks, filters, fsmonitor, a pager, an ssh program and a partial clone's remote would each leave a canary."""
    project = box.folder / "project"
    box.write("project/data/a.txt", "one\n")
    box.write("project/.gitattributes", "* filter=evil diff=evil merge=evil\n")
    git(project, "init", "-q")
    git(project, "add", "-A")
    git(project, "commit", "-qm", "first")
    canary = box.folder / "canary"
    evil = box.write("evil.sh", f"#!/bin/sh\necho $0 $* >> {canary}\ncat\n")
    evil.chmod(0o755)
    (project / ".git/hooks").mkdir(exist_ok=True)
    for hook in ("post-checkout", "post-index-change", "reference-transaction", "pre-commit", "fsmonitor-watchman"):
        (project / ".git/hooks" / hook).write_text(evil.read_text())
        (project / ".git/hooks" / hook).chmod(0o755)
    for name in ("core.fsmonitor", "filter.evil.smudge", "filter.evil.clean", "filter.evil.process", "diff.evil.textconv", "merge.evil.driver", "core.pager",
                 "core.sshCommand", "uploadpack.packObjectsHook", "remote.origin.uploadpack", "core.alternateRefsCommand", "gpg.program"):  # fmt: skip
        git(project, "config", name, str(evil))
    git(project, "config", "remote.origin.url", str(project))
    git(project, "config", "remote.origin.promisor", "true")
    before = listing(project / ".git")
    box.spec("sum", SUMMING.format(root=project))
    box.start()
    box.wait_at_rest("sum", runs=1)
    place = fork(box)
    (place / "out/sum.txt").write_text("fork\n")
    (project / "out/sum.txt").write_text("parent\n")
    box.ask("merge", "sum", "trial")
    assert not canary.exists(), canary.read_text()
    assert listing(project / ".git") == before
    assert "evil" not in (place / ".git/config").read_text() and not (place / ".git/hooks").exists()


def test_what_writes_outside_of_root_stays_detached(box: Box) -> None:
    """A binding that reads outside goes on reading there.

    An absolute path inside root comes along, in the command as well.
    """
    project = box.folder / "project"
    box.write("project/in.txt", "1\n")
    box.write("shared.txt", "shared\n")
    box.spec(
        "sum",
        f"""
        root: {project}
        objective: Sum up.
        bindings:
          data:   {{file: "{project}/in.txt"}}
          shared: {{file: ../shared.txt}}
          out:    {{file: "{project}/out/**", access: write}}
        run: {{command: [sh, -c, 'mkdir -p {project}/out; cat {project}/in.txt > {project}/out/sum.txt']}}
        """,
    )
    box.spec(
        "report",
        f"root: {project}\nobjective: Report.\nbindings: {{there: {{file: {box.folder}/reports/x, access: write}}}}\nrun: {{command: ['true']}}\n",
    )
    box.start()
    box.wait_at_rest("sum", runs=1)
    place = fork(box)
    bindings = {one["name"]: one["what"] for one in box.json("show", "trial")["bindings"]}
    assert (
        bindings["data"] == "in.txt"
        and bindings["shared"] == str(box.folder / "shared.txt")
        and bindings["out"] == "out/**"
    )
    (place / "in.txt").write_text("2\n")
    assert box.run("activate", "trial", "--wait").returncode == 0
    # The change is owed a run of its own, which writes the output anew.
    box.wait_at_rest("trial")
    assert (place / "out/sum.txt").read_text() == "2\n" and (project / "out/sum.txt").read_text() == "1\n"
    assert "there would write outside of it and stays detached" in box.words(
        "fork", "report", "--as", "other", "--workspace"
    )
    assert box.json("show", "other")["detached"] == ["there"] and box.run("activate", "other").returncode == 1


def test_a_workspace_is_a_place_apart(box: Box) -> None:
    """It may not lie in the repository, in the state folder, or where something is. A refused fork leaves nothing."""
    root = start(box, has_repository=True)
    box.write("full/file", "x")
    (box.folder / "sly").symlink_to(root)
    for folder, words in (
        (root / "inner", "contains the other"),
        (box.state / "x", "contains the other"),
        (box.folder / "full", "is not empty"),
        (box.folder / "sly/inner", "contains the other"),
    ):
        done = box.run("fork", "sum", "--as", "trial", "--workspace", str(folder))
        assert done.returncode == 1 and words in " ".join(done.stderr.split()), done.stderr
    assert box.run("fork", "sum", "--as", "sum", "--workspace").returncode == 1
    assert box.run("fork", "sum", "--as", "../x", "--workspace").returncode == 1
    assert not (root / "inner").exists() and not list((box.state / "workspaces").glob("*"))


def test_a_terminated_fork_leaves_its_workspace_and_doctor_names_it(box: Box) -> None:
    start(box, has_repository=True)
    place = fork(box)
    assert not [one for one in box.json("doctor") if one["name"] == "workspace"]
    box.ask("terminate", "trial")
    assert (place / "README").exists()
    (found,) = [one for one in box.json("doctor") if one["name"] == "workspace"]
    assert str(place) in found["words"] and "MB" in found["words"] and found["mend"] == f"rm -r -- {place}"
    shutil.rmtree(place)
    assert not [one for one in box.json("doctor") if one["name"] == "workspace"]


def test_a_fork_whose_workspace_is_gone_still_brings_what_it_knows(box: Box) -> None:
    start(box, has_repository=False)
    place = fork(box)
    box.ask("remember", "trial", "rate", "9")
    shutil.rmtree(place)
    assert "1 fact taken" in box.words("merge", "sum", "trial")
    assert [fact["value"] for fact in box.json("facts", "sum")] == ["9"]


def test_a_fork_of_a_fork_has_a_place_of_its_own_too(box: Box) -> None:
    """Its files go back to the fork that it came from, and no further."""
    root = start(box, has_repository=True)
    box.write("project/out/a.txt", "before\n")
    place = fork(box)
    box.ask("fork", "trial", "--as", "deeper", "--workspace")
    deeper = Path(box.json("show", "deeper")["root"])
    assert listing(deeper / "data") == listing(root / "data")
    (deeper / "out/a.txt").write_text("deep\n")
    box.ask("merge", "trial", "deeper")
    assert (place / "out/a.txt").read_text() == "deep\n" and (root / "out/a.txt").read_text() == "before\n"
    box.ask("merge", "sum", "trial")
    assert (root / "out/a.txt").read_text() == "deep\n"


def test_bundles_carry_what_a_merge_compares_with_and_what_it_overwrote(box: Box) -> None:
    """They have the base of the fork, and the contents with which the merge can be undone."""
    start(box, has_repository=False)
    box.write("project/out/a.txt", "overwritten by the merge\n")
    place = fork(box)
    (place / "out/a.txt").write_text("written by the fork\n")
    box.ask("merge", "sum", "trial")
    for name in ("trial", "sum"):
        box.ask("save", name, "-o", str(box.folder / f"{name}.bundle"))
    kept = {name: gzip.decompress((box.folder / f"{name}.bundle").read_bytes()).decode() for name in ("trial", "sum")}
    addresses = {
        text: f"blake2b-{hashlib.blake2b(text.encode(), digest_size=20).hexdigest()}"
        for text in ("overwritten by the merge\n", "written by the fork\n")
    }
    blobs = {name: {line for line in text.splitlines() if '"blob"' in line} for name, text in kept.items()}
    assert any(addresses["overwritten by the merge\n"] in line for line in blobs["trial"])
    assert all(any(address in line for line in blobs["sum"]) for address in addresses.values())
