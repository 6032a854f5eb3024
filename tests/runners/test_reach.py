"""The reach of a run, computed from its order: the folders that are opened, the refusals, and the messages."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from wakeful.core.spec.session import Confinement
from wakeful.runners.contract import RunOrder
from wakeful.runners.isolation import system_places as system
from wakeful.runners.isolation.landlock import READ, READ_DIR, WRITE, probe_abi
from wakeful.runners.isolation.reach import Protected, Reach, ReachRefused, find_reach
from wakeful.runners.isolation.shield import can_shield
from wakeful.runners.isolation.system_places import SystemPlaces, list_settings

pytestmark = pytest.mark.skipif(probe_abi() == 0, reason="this kernel has no Landlock")


class Ground:
    """A project with its specs, its state beside it, and orders for runs in it."""

    def __init__(self, folder: Path, system: SystemPlaces) -> None:
        self.root = folder / "project"
        self.state = folder / "state"
        self.specs = self.root / "sessions.d"
        for path in (self.specs, self.state / "scratch", self.state / "run", self.state / "temporary"):
            path.mkdir(parents=True)
        self._system = system

    def reach(self, *argv: str, **changes: object) -> Reach:
        values = dict(
            session="s", name="s", run=1, run_id="s.1", argv=argv or ("true",), root=str(self.root), cwd=str(self.root), timeout_seconds=1.0,
            grace_seconds=1.0, scratch=f"{self.state}/scratch", temporary=f"{self.state}/temporary", folder=f"{self.state}/run", causes=b"",
            socket="", token="", output_limit_bytes=1,
        )  # fmt: skip
        if "script" in changes:
            values["argv"] = ()
        path = str(changes.pop("path", "/usr/bin:/bin"))
        order = RunOrder(**(values | changes))
        return find_reach(order, {"PATH": path}, self._system, Protected(specs=str(self.specs), state=str(self.state)))

    def rights(self, reach: Reach) -> dict[str, int]:
        """Return the rights by absolute path, without those that every run has."""
        own = {f"{self.state}/{name}" for name in ("scratch", "run", "temporary")}
        found = {
            os.path.normpath(os.path.join(grant.beneath or "/", grant.path)): grant.rights
            for grant in reach.policy.grants
        }
        return {path: rights for path, rights in found.items() if path not in own}


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    with ThreadPoolExecutor(1) as pool:
        system = SystemPlaces(pool)
        yield Ground(tmp_path, system)
        system.close()


def test_a_literal_opens_itself_and_a_pattern_its_folder(ground: Ground) -> None:
    """Of the literal's folder only the names can be read."""
    (ground.root / "data").mkdir()
    (ground.root / "a.csv").touch()
    rights = ground.rights(ground.reach(reads=("a.csv", "data/*.csv")))
    assert rights == {f"{ground.root}/a.csv": READ, f"{ground.root}/data": READ, str(ground.root): READ_DIR}


def test_an_output_opens_the_folder_that_holds_it_and_makes_it(ground: Ground) -> None:
    """An output that names a folder opens the folder itself."""
    reach = ground.reach(writes=("out/deep/report.md", "pages/"))
    assert ground.rights(reach) == {f"{ground.root}/out/deep": WRITE, f"{ground.root}/pages": WRITE}
    assert reach.opened == (f"{ground.root}/out/deep",)
    assert (ground.root / "out/deep").is_dir()


def test_what_no_run_may_change_is_refused(ground: Ground) -> None:
    """The protected place is named by an output, and by `allow`."""
    for changes in ({"writes": ("sessions.d/x.yaml",)}, {"confinement": Confinement(allow_write=(str(ground.state),))}):
        with pytest.raises(ReachRefused, match="which no run may change"):
            ground.reach(**changes)


def test_specs_beside_an_output_are_shielded_or_the_record_says_that_they_are_not(ground: Ground) -> None:
    """Isolation is never weaker than the record says."""
    reach = ground.reach(writes=("report.md",))
    told = " ".join(reach.unenforced)
    assert (str(ground.specs) in reach.policy.shielded) != ("specs are within its reach" in told)
    assert bool(reach.policy.shielded) == can_shield()


def test_a_home_folder_is_not_opened_for_one_file(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file itself is opened, and is made for that purpose."""
    home = ground.root.parent / "home"
    home.mkdir()
    monkeypatch.setattr("wakeful.runners.isolation.reach._find_home", lambda: str(home))
    rights = ground.rights(ground.reach(writes=(f"{home}/notes.md",)))
    assert rights == {f"{home}/notes.md": WRITE}
    assert (home / "notes.md").read_bytes() == b""


def test_a_link_out_of_root_is_refused_unless_it_is_allowed(ground: Ground) -> None:
    """A run could have made the link."""
    outside = ground.root.parent / "outside"
    outside.mkdir()
    (ground.root / "data").symlink_to(outside)
    with pytest.raises(ReachRefused, match="by a symbolic link"):
        ground.reach(reads=("data/*.csv",))
    allowed = ground.rights(ground.reach(reads=("data/*.csv",), confinement=Confinement(allow_read=(str(outside),))))
    assert allowed == {str(outside): READ}


def test_a_venv_is_found_by_its_name_on_path(ground: Ground) -> None:
    """The Python of the venv and the folders of editable installs are found with it.

    Their neighbours are not opened.
    """
    base, venv, source = (ground.root.parent / name for name in ("base", "venv", "source"))
    for path in (base / "bin", base / "lib/python3.11", venv / "bin", venv / "lib/python3.11/site-packages", source):
        path.mkdir(parents=True)
    (base / "bin/python3").write_text("")
    (base / "bin/python3").chmod(0o755)
    (venv / "bin/python3").symlink_to(base / "bin/python3")
    (venv / "pyvenv.cfg").write_text(f"home = {base}/bin\n")
    (venv / "lib/python3.11/site-packages/editable.pth").write_text(f"import x\n{source}\n")
    rights = ground.rights(ground.reach(script="python3 -c pass", path=f"{venv}/bin:/usr/bin"))
    assert {str(venv), f"{base}/lib", str(source)} <= set(rights)
    assert str(base.parent) not in rights
    assert str(venv) not in ground.rights(ground.reach(script="echo hello", path=f"{venv}/bin:/usr/bin"))


def test_shims_are_read_with_all_that_they_choose_from(ground: Ground) -> None:
    """A shim, as of pyenv, is a small script that looks around its own folder."""
    root = ground.root.parent / ".pyenv"
    (root / "shims").mkdir(parents=True)
    (root / "shims/python3").write_text("#!/usr/bin/env bash\n")
    assert str(root) in ground.rights(ground.reach("python3", "x.py", path=f"{root}/shims:/usr/bin"))


@pytest.mark.parametrize("word", [".bin/agent", "@scope/agent/dist/index.js"])
def test_a_package_of_npm_is_read_with_those_beside_it(ground: Ground, word: str) -> None:
    """The package is named by npm's link or by its own path.

    The outermost folder of packages is opened, which holds all that it loads. The project's own files are not in it.
    """
    packages = ground.root.parent / "tools" / "node_modules"
    for folder in (".bin", "@scope/agent/dist", "@scope/agent/node_modules/inner"):
        (packages / folder).mkdir(parents=True)
    (packages / "@scope/agent/dist/index.js").touch(0o755)
    (packages / ".bin/agent").symlink_to("../@scope/agent/dist/index.js")
    rights = ground.rights(ground.reach("node", f"{packages}/{word}"))
    assert rights[str(packages)] == READ and str(packages.parent) not in rights


def test_files_that_the_author_named_are_readable(ground: Ground) -> None:
    """`python3 build.py` in a script needs build.py, although no binding names it.

    A word that is not a file changes nothing.
    """
    (ground.root / "build.py").touch()
    (ground.root / ".env").touch()
    rights = ground.rights(ground.reach(script="python3 build.py missing.py ../state > /dev/null"))
    assert rights[f"{ground.root}/build.py"] == READ
    assert f"{ground.root}/.env" not in rights


def test_the_program_of_the_project_tells_what_it_starts(ground: Ground) -> None:
    """The words of the project's own program are searched for names of programs on PATH."""
    tools = ground.root.parent / "tools"
    tools.mkdir()
    (tools / "render").write_text("#!/bin/sh\n")
    (ground.root / "go.sh").write_text("render --all\n")
    rights = ground.rights(ground.reach("sh", "go.sh", program="go.sh", path=f"{tools}:/usr/bin"))
    assert rights[f"{tools}/render"] == READ


def test_hosts_are_said_not_to_be_enforced(ground: Ground) -> None:
    """Only the ports are enforced."""
    reach = ground.reach(confinement=Confinement(network=("api.example.com:443", "db:5432")))
    assert reach.policy.network == (443, 5432)
    assert any("hosts" in words for words in reach.unenforced)


def test_who_has_a_network_can_look_up_names(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """This holds also if resolv.conf is a link that leads out of /etc, as systemd makes it."""
    told, link = ground.root.parent / "stub-resolv.conf", ground.root.parent / "resolv.conf"
    told.touch()
    link.symlink_to(told)
    monkeypatch.setattr(system, "RESOLVER", str(link))
    for network, is_told in ((("api.example.com:443",), True), (True, True), (False, False)):
        assert (str(told) in ground.rights(ground.reach(confinement=Confinement(network=network)))) is is_told


def test_a_port_without_a_host_is_to_be_listened_on(ground: Ground) -> None:
    """A run may also connect to that port, because a program that listens there may talk to itself."""
    policy = ground.reach(confinement=Confinement(network=("db:5432", ":4096"))).policy
    assert (policy.network, policy.listens) == ((5432, 4096), (4096,))
    assert ground.reach(confinement=Confinement(network=True)).policy.listens == ()


def test_settings_for_everybody_are_whole_folders_where_they_can_be(tmp_path: Path) -> None:
    """A secret in a folder closes only that file. Its neighbours are opened one by one."""
    for folder in ("open", "mixed", "shut"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "file").touch(0o644)
        (tmp_path / folder).chmod(0o755)
    (tmp_path / "mixed/secret").touch(0o600)
    (tmp_path / "shut").chmod(0o700)
    assert sorted(list_settings(str(tmp_path))) == [f"{tmp_path}/mixed/file", f"{tmp_path}/open"]
