"""The same hostile program in a workspace of its own: only declared outputs reach the project, and only by landing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from security.conftest import Attack
from wait_conditions import eventually
from wakeful.runners.isolation.landlock import probe_abi

KEEPER = """
objective: Do as it likes.
bindings:
  order: {{file: order.txt}}
  out:   {{file: "{pattern}", access: write}}
run:
  script: |
    {script}
  retries: 0
  workspace: {kind}
"""


class WorkspaceAttack(Attack):
    """An attack in which `shut` works in a workspace, under the usual isolation."""

    def carry_out(self, *, limits: str = "", **order: Any) -> None:
        for name, level in (("open", "none"), ("shut", "standard")):
            self.declare(name, level, limits, **{key: value.replace("{name}", name) for key, value in order.items()})
        spec = self.specs / "shut.yaml"
        spec.write_text(spec.read_text().replace("  retries: 0", "  retries: 0\n  workspace: copy"))
        self.start()
        for name in ("open", "shut"):
            self.settle(name, runs=1)

    def disarm(self) -> None:
        """Let the next daemon land every output, wherever links lead."""
        self.weaken("land_anywhere")

    def obey(self, script: str, pattern: str = "out/**", kind: str = "copy") -> dict[str, Any]:
        """Run a harmful script once. Return the record of its end."""
        runs = self.row("keeper")["runs"] if self.daemon is not None else 0
        self.order(script, pattern, kind)
        self.settle("keeper", runs=runs + 1)
        return [record["payload"] for record in self.log("keeper") if record["kind"] == "run_finished"][-1]

    def order(self, script: str, pattern: str, kind: str = "copy") -> None:
        self.spec_raw("keeper", KEEPER.format(pattern=pattern, script=script.replace("\n", "\n    "), kind=kind))
        (self.project / "order.txt").write_text(script)
        if self.daemon is None:
            self.start()

    def kept(self) -> dict[str, str]:
        """Return the paths that the last landing did not take, with the reasons."""
        landed = [record["payload"] for record in self.log("keeper") if record["kind"] == "outputs_landed"][-1]
        return {one["path"]: one["words"] for one in landed["kept"]}


@pytest.fixture
def attack(tmp_path: Path) -> Iterator[WorkspaceAttack]:
    if probe_abi() < 6:
        pytest.skip("this kernel's Landlock is too old for the whole suite: Linux 6.12 has all of it")
    made = WorkspaceAttack(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("how", "place"),
    [
        ("write", "out/{name}.txt"),
        *(
            pytest.param(*one, marks=pytest.mark.long)
            for one in (("replace", "out/{name}.txt"), ("write", "out/other.txt"), ("write", "notes.txt"))
        ),
    ],
)
def test_the_real_place_of_an_output_is_out_of_reach(attack: WorkspaceAttack, how: str, place: str) -> None:
    """A run cannot write to the project itself, not even to its own output's place."""
    (attack.project / "out").mkdir()
    attack.carry_out(do=how, path=str(attack.project / place), text="x")
    attack.assert_stopped()


@pytest.mark.long
def test_what_is_not_bound_cannot_be_read_where_it_really_is(attack: WorkspaceAttack) -> None:
    """The copy does not have the file, and the original cannot be read."""
    (attack.project / "private.txt").write_text("PRIVATE")
    attack.carry_out(do="read", path=str(attack.project / "private.txt"))
    attack.assert_stopped()
    assert "PRIVATE" in attack.told("open") and "PRIVATE" not in attack.told("shut")


@pytest.mark.long
@pytest.mark.parametrize("kind", ["copy", "worktree"])
def test_links_in_the_workspace_lead_landing_nowhere(attack: WorkspaceAttack, kind: str) -> None:
    """A run replaces an output's folder by a link, and makes an output that is a link.

    Nothing is written or read behind them.
    """
    os.system(
        f"cd {attack.project} && git init -q && git add obedient_program.py && git -c user.name=A -c user.email=a@b commit -qm x"
    )
    (attack.project / "out/sub").mkdir(parents=True)
    (attack.project / "out/sub/a.txt").write_text("old")
    ended = attack.obey(
        f"rm -r out/sub; ln -s {attack.home}/.ssh out/sub; ln -s {attack.home}/.ssh/id_ed25519 out/key", kind=kind
    )
    assert ended["outcome"] == "succeeded", attack.told("keeper")
    assert (attack.project / "out/key").is_symlink() and (attack.home / ".ssh/id_ed25519").read_text() == "PRIVATE KEY"
    # The folder stays. The file in it is gone, because the run removed it.
    assert not (attack.project / "out/sub/a.txt").exists() and not (attack.project / "out/sub").is_symlink()
    # The next run finds no content behind the link that this one left.
    ended = attack.obey("cat out/key > out/stolen", kind=kind)
    assert ended["outcome"] == "failed" and not (attack.project / "out/stolen").exists()
    assert os.listdir(attack.home / ".ssh") == ["id_ed25519"]


@pytest.mark.long
@pytest.mark.parametrize("is_defended", [True, False])
def test_a_link_that_landed_once_is_not_written_through_by_the_next_run(
    attack: WorkspaceAttack, is_defended: bool
) -> None:
    """A run leaves a link to the specs. The next one has a folder with a spec in its place.

    Without the defence, the spec lands behind the link.
    """
    if not is_defended:
        attack.disarm()
    assert attack.obey("ln -s sessions.d a; echo x > b.txt", pattern="**")["outcome"] == "succeeded"
    assert (attack.project / "a").is_symlink() and (attack.project / "b.txt").exists()
    evil = "run: {command: ['true']}"
    script = f'rm a; mkdir a; echo "{evil}" > a/evil.yaml'
    if not is_defended:
        attack.order(script, "**")
        eventually(lambda: "evil.yaml" in os.listdir(attack.specs))
        return
    attack.obey(script, pattern="**")
    assert "a symbolic link in its path" in attack.kept()["a/evil.yaml"]
    assert sorted(os.listdir(attack.specs)) == ["keeper.yaml"]


@pytest.mark.long
@pytest.mark.parametrize("is_defended", [True, False])
@pytest.mark.parametrize("place", ["sessions.d/evil.yaml", "wakeful.yaml", ".git/hooks/pre-commit"])
def test_what_no_run_may_change_does_not_land_either(attack: WorkspaceAttack, place: str, is_defended: bool) -> None:
    """A binding for all of root does not open the specs, the settings or git's hooks."""
    if not is_defended:
        attack.disarm()
    before = (attack.project / "wakeful.yaml").read_text()
    ended = attack.obey(
        f"mkdir -p {os.path.dirname(place) or '.'}; echo evil > {place}; echo fine > fine.txt", pattern="**"
    )
    assert ended["outcome"] == "succeeded", attack.told("keeper")
    # Hooks are stopped earlier: they are not even collected from the workspace.
    if not is_defended and not place.startswith(".git"):
        assert (attack.project / place).read_text() == "evil\n"
        return
    assert (attack.project / "fine.txt").exists() and (attack.project / "wakeful.yaml").read_text() == before
    assert sorted(os.listdir(attack.specs)) == ["keeper.yaml"] and not (attack.project / ".git").exists()
    if not place.startswith(".git"):
        assert "which no run may change" in attack.kept()[place]


@pytest.mark.long
def test_pipes_and_locked_folders_hold_up_nobody(attack: WorkspaceAttack) -> None:
    """A file that cannot be an output is reported and not landed. A locked folder fails the run, but not root's.

    Nothing is left of the workspace.
    """
    ended = attack.obey(
        "mkfifo out/pipe; mkdir -p shut/deep; touch shut/deep/x; echo x > out/x; chmod 0 shut/deep shut"
    )
    assert ended["outcome"] == ("succeeded" if os.geteuid() == 0 else "failed")
    if os.geteuid() == 0:
        assert ended["undeclared"] == ["out/pipe", "shut/deep/x"] and (attack.project / "out/x").read_text() == "x\n"
    assert not (attack.project / "out/pipe").exists()
    eventually(lambda: os.listdir(attack.state / "staged") == [])


@pytest.mark.long
def test_the_workspace_of_another_run_is_out_of_reach(attack: WorkspaceAttack) -> None:
    """The workspace lies in the state folder, which no run can read."""
    ended = attack.obey(f"ls {attack.state}/staged")
    assert ended["outcome"] == "failed" and "Permission denied" in attack.told("keeper")
