"""A run may write beside a repository's `.git`, but not in it.

Git would run what the run leaves there, as the person who uses git next. Every attack is made three times, each in a
repository of its own. It works without isolation, and fails under `standard` and `strict`. The daemon is root's, whose
threads mount, or an ordinary user's, for which a small program mounts.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.box import Box
from git_repository import git
from ordinary_user import OrdinaryBox
from wait_conditions import eventually
from wakeful.agents.tools.bound_files import Bounds
from wakeful.runners.isolation import bubblewrap
from wakeful.runners.isolation.landlock import probe_abi

pytestmark = pytest.mark.skipif(probe_abi() == 0, reason="this kernel cannot confine anything")
LEVELS = {"open": "none", "shut": "standard", "strict": "strict"}
SETTINGS = "wakeful.yaml"


class RootBox(Box):
    def reach(self) -> str:
        return ""


@pytest.fixture(params=["root", "ordinary"])
def yard(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Box]:
    if request.param == "ordinary":
        yield request.getfixturevalue("ordinary_box")
        return
    if os.geteuid() != 0:
        pytest.skip("NOT TESTED as root: the suite is not root")
    folder = tmp_path / "project"
    folder.mkdir()
    made = RootBox(folder)
    yield made
    made.close()


def make_repository(folder: Path) -> Path:
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    (folder / "README.md").write_text("one\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    return folder


def make_repository_with_parts(folder: Path, library: Path) -> Path:
    """Make a repository with a submodule, which has a `.git` file, and with another repository cloned into it."""
    make_repository(folder)
    git(folder, "submodule", "--quiet", "add", str(library), "libs/module")
    git(folder, "commit", "-qm", "with a module")
    git(folder, "clone", "-q", str(library), "vendor/clone")
    return folder


def declare(box: Box, script: str, levels: dict[str, str] = LEVELS, more: str = "") -> None:
    box.write(SETTINGS, "allow_unisolated: true\n")
    for name, level in levels.items():
        ordinary_work = f"echo done > NOTE-{name}.new; mv NOTE-{name}.new NOTE-{name}.md"
        outputs = f"{{note: {{file: NOTE-{name}.md, access: write}}{more}}}"
        box.spec(
            name,
            f"""
            root: {name}
            isolation: {level}
            bindings: {outputs}
            first: run
            run: {{script: {json.dumps(f"{script}; {ordinary_work}")}, retries: 0}}
            """,
        )


def carry_out(box: Box, levels: dict[str, str] = LEVELS) -> None:
    box.start()
    for name in levels:
        row = box.wait_at_rest(name, runs=1)
        assert row["last_run"]["outcome"] == "succeeded", box.words("output", name)


def read(folder: Path) -> dict[str, Any]:
    """Return everything in the `.git` folders and files of a repository, except times."""
    return {
        str(path.relative_to(folder)): os.readlink(path)
        if path.is_symlink()
        else path.read_bytes()
        if path.is_file()
        else None
        for path in sorted(folder.rglob("*"))
        if ".git" in path.relative_to(folder).parts
    }


ATTACKS = {
    "a hook": "printf '#!/bin/sh\\ntouch owned\\n' > .git/hooks/post-commit; chmod +x .git/hooks/post-commit",
    "a setting": "git config core.fsmonitor 'touch owned'",
    "a renamed folder": "mv .git .git-before && mkdir .git",
    "a removed folder": "rm -rf .git",
    "a pointer": "rm -rf .git && echo 'gitdir: /tmp/elsewhere' > .git",
    "a link": "mv .git away && ln -s away .git",
    "a link to a hook": "ln -s ../../README.md .git/hooks/pre-commit",
    "a hard link": "rm README.md && ln .git/config README.md && echo '[core]' >> README.md",
    "borrowed objects": "mkdir -p .git/objects/info && echo /elsewhere > .git/objects/info/alternates",
    "a module's pointer": "echo 'gitdir: /elsewhere' > libs/module/.git",
    "a module's hook": "touch .git/modules/libs/module/hooks/post-checkout",
    "a clone's setting": "echo '[core] fsmonitor = x' >> vendor/clone/.git/config",
    "a folder of mounts": "mkdir -p m && mount --bind m .git; unshare -Urm sh -c 'umount .git; touch .git/owned' || unshare -Urm mount --bind m .git",
}


def test_an_output_in_the_root_of_a_repository_opens_no_part_of_git(yard: Box) -> None:
    """One daemon runs all attacks, and the repository is compared after all of them."""
    library = make_repository(yard.folder / "library")
    script = "; ".join(f"({attack}) 2>/dev/null || true" for attack in ATTACKS.values())
    before = {}
    for name in LEVELS:
        make_repository_with_parts(yard.folder / name, library)
        before[name] = read(yard.folder / name)
    levels = (
        LEVELS
        if bubblewrap.find_obstacle() is None
        else {name: level for name, level in LEVELS.items() if level != "strict"}
    )
    declare(yard, script, levels)
    carry_out(yard, levels)
    for name in levels:
        assert yard.read(f"{name}/NOTE-{name}.md") == "done\n", "what it declares, it may write and replace"
    assert read(yard.folder / "open") != before["open"]
    assert (yard.folder / "open/.git").is_symlink() or not (yard.folder / "open/.git/HEAD").exists()
    for name in levels.keys() - {"open"}:
        assert read(yard.folder / name) == before[name]
    assert git(yard.folder / "shut", "log", "--format=%s").split("\n")[:1] == ["with a module"]


# Mounts attack the shield. Without a shield, they have no effect.
@pytest.mark.parametrize("what", sorted(ATTACKS.keys() - {"a folder of mounts"}))
def test_without_the_rule_each_attack_succeeds(what: str, tmp_path: Path) -> None:
    """Run each attack by hand, to show that it works if nothing prevents it."""
    library = make_repository(tmp_path / "library")
    folder = make_repository_with_parts(tmp_path / "open", library)
    before = read(folder)
    subprocess.run(
        ["sh", "-c", ATTACKS[what]],
        cwd=folder,
        env=os.environ | {"GIT_CONFIG_GLOBAL": "/dev/null"},
        check=False,
        capture_output=True,
    )
    assert read(folder) != before


def test_a_pattern_over_a_repository_leaves_git_out(yard: Box) -> None:
    """Under `strict`, `.git` is neither copied into the run's area nor written back from it."""
    levels = (
        LEVELS
        if bubblewrap.find_obstacle() is None
        else {name: level for name, level in LEVELS.items() if level != "strict"}
    )
    yard.write(SETTINGS, "allow_unisolated: true\n")
    for name, level in levels.items():
        make_repository(yard.folder / name)
        script = "mkdir -p .git/hooks; (echo evil > .git/hooks/post-commit; echo '[x]' >> .git/config) || true; echo new > page.new; mv page.new page.md"
        yard.spec(
            name,
            f"""
            root: {name}
            isolation: {level}
            bindings: {{all: {{file: "**/*", access: write}}}}
            first: run
            run: {{script: {json.dumps(script)}, retries: 0}}
            """,
        )
    yard.start()
    for name in levels:
        yard.wait_at_rest(name, runs=1)
        assert yard.read(f"{name}/page.md") == "new\n", yard.words("output", name)
    assert (yard.folder / "open/.git/hooks/post-commit").exists()
    for name in levels.keys() - {"open"}:
        assert not (yard.folder / name / ".git/hooks/post-commit").exists()
        assert "[x]" not in yard.read(f"{name}/.git/config")


def test_the_tools_of_an_agent_write_git_only_where_it_is_named(tmp_path: Path) -> None:
    root = str(tmp_path)
    assert Bounds.build(root, writes=["**/*"]).may("write", f"{root}/page.md")
    assert not Bounds.build(root, writes=["**/*"]).may("write", f"{root}/.git/config")
    assert not Bounds.build(root, writes=["libs"]).may("write", f"{root}/libs/module/.git")
    assert Bounds.build(root, writes=[".git/description"]).may("write", f"{root}/.git/description")


def test_a_spec_that_names_git_may_write_it(yard: Box) -> None:
    """A session that commits must name `.git` in its spec."""
    for name in ("open", "shut"):
        make_repository(yard.folder / name)
    script = "git -c user.name=A -c user.email=a@example.com commit -q --allow-empty -m by-the-run"
    levels = {"shut": "standard"}
    declare(yard, script, levels)
    yard.spec("shut", (yard.specs / "shut.yaml").read_text() + "allow: {write: [.git]}\n")
    carry_out(yard, levels)
    assert git(yard.folder / "shut", "log", "-1", "--format=%s") == "by-the-run"


@pytest.mark.parametrize("level", ["standard", "strict"])
def test_a_link_into_git_is_no_output(yard: Box, level: str) -> None:
    """A run may have put the link in the place of the next run's output."""
    if level == "strict" and bubblewrap.find_obstacle() is not None:
        pytest.skip(f"nothing can be isolated strictly here: {bubblewrap.find_obstacle()}")
    folder = make_repository(yard.folder / "shut")
    (folder / "out").symlink_to(".git/hooks")
    yard.spec(
        "shut",
        f"""
        root: shut
        isolation: {level}
        bindings: {{page: {{file: "out/*", access: write}}}}
        first: run
        run: {{script: "echo owned > out/post-commit", retries: 0}}
        """,
    )
    yard.start()
    yard.wait_at_rest("shut", runs=1)
    assert yard.row("shut")["last_run"]["outcome"] == "failed"
    assert not (folder / ".git/hooks/post-commit").exists()
    assert "written only if a spec names it" in yard.words("show", "shut")


def test_specs_and_state_are_out_of_an_ordinary_users_reach(ordinary_box: OrdinaryBox) -> None:
    """An output beside sessions.d opens their folder, but not the specs and the state.

    Without isolation, the run writes both.
    """
    ordinary_box.write(SETTINGS, "allow_unisolated: true\n")
    for name, level in (("open", "none"), ("shut", "standard")):
        script = f"(echo '# by {name}' >> sessions.d/{name}.yaml; touch state/{name}) || true; echo done > NOTE-{name}.new; mv NOTE-{name}.new NOTE-{name}.md"
        ordinary_box.spec(
            name,
            f"""
            isolation: {level}
            bindings: {{note: {{file: NOTE-{name}.md, access: write}}}}
            first: run
            run: {{script: {json.dumps(script)}, retries: 0}}
            """,
        )
    ordinary_box.start()
    for name in ("open", "shut"):
        ordinary_box.wait_at_rest(name, runs=1)
        assert ordinary_box.read(f"NOTE-{name}.md") == "done\n", ordinary_box.words("output", name)
    assert ordinary_box.read("sessions.d/open.yaml").endswith("# by open\n") and (ordinary_box.state / "open").exists()
    assert (
        not ordinary_box.read("sessions.d/shut.yaml").endswith("# by shut\n")
        and not (ordinary_box.state / "shut").exists()
    )
    log = ordinary_box.words("show", "shut")
    assert "within its reach" not in log


def test_a_run_that_puts_another_repository_in_the_place_of_a_bound_one_is_not_shown_it(yard: Box) -> None:
    """A run may write around the checkout, and so can rename it.

    Without isolation, the next run of another session is given the private files.
    """
    private = make_repository(yard.folder / "private")
    (private / "secret.txt").write_text("SECRET\n")
    git(private, "add", ".")
    git(private, "commit", "-qm", "a private subject")
    yard.write(SETTINGS, "allow_unisolated: true\n")
    for name, level in (("open", "none"), ("shut", "standard")):
        make_repository(yard.folder / name / "inner")
        attack = (
            f"mv inner before && mkdir inner && echo 'gitdir: {private}/.git' > inner/.git; echo done > planted.txt"
        )
        yard.spec(
            f"{name}-plants",
            f"""
            root: {name}
            isolation: {level}
            bindings:
              go: {{file: go.txt}}
              all: {{file: planted.txt, access: write}}
            first: adopt
            run: {{script: {json.dumps(attack)}, retries: 0}}
            """,
        )
        yard.spec(
            f"{name}-follows",
            f"""
            root: {name}
            bindings:
              code: {{commits: ., repo: inner, export: true}}
              seen: {{file: seen/{name}.txt, access: write}}
            first: run
            run: {{script: "ls $WAKEFUL_BINDING_CODE > seen/{name}.txt", retries: 0}}
            """,
        )
    yard.start()
    for name in ("open", "shut"):
        yard.wait_at_rest(f"{name}-follows", runs=1)
    for name in ("open", "shut"):
        (yard.folder / name / "go.txt").write_text("go\n")
        yard.wait_at_rest(f"{name}-plants", runs=1)
        assert (yard.folder / name / "inner/.git").is_file(), "nothing keeps it from that"
    yard.wait_at_rest("open-follows", runs=2)
    assert "secret.txt" in yard.read("open/seen/open.txt")
    eventually(lambda: "could have put it there" in yard.words("why", "shut-follows"))
    assert "secret.txt" not in yard.read("shut/seen/shut.txt")
    assert "private subject" not in yard.words("log", "shut-follows")
