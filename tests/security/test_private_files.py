"""Folders of runs and of the state that are removed are made again as private as before, whatever the umask is."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from ordinary_user import OrdinaryBox
from wakeful.system.blobs import Blobs
from wakeful.system.private_files import make_private

SPEC = """
objective: Say who may look.
bindings: {out: {file: out/modes.txt, access: write}}
run:
  script: |
    folder=$(dirname "$WAKEFUL_TOKEN_FILE")
    stat -c %a "$folder" "$(dirname "$folder")" > out/modes.txt
"""


@pytest.fixture
def open_umask() -> Iterator[None]:
    """Set the umask that most logins have."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.parametrize("is_defended", [True, False])
def test_a_runs_folder_that_vanished_is_private_again(
    ordinary_box: OrdinaryBox, open_umask: None, is_defended: bool
) -> None:
    """logind or a person may remove a run's folder and its parents while the daemon lives.

    If the umask decided the mode, others could look into the new folder.
    """
    if not is_defended:
        ordinary_box.weaken("leave_folders_to_the_umask")
    ordinary_box.spec("look", SPEC)
    ordinary_box.start()
    for runs in (1, 2):
        ordinary_box.ask("activate", "look")
        ordinary_box.wait_at_rest("look", runs=runs)
        assert ordinary_box.row("look")["last_run"]["outcome"] == "succeeded", ordinary_box.ask("output", "look")
        assert ordinary_box.lines("out/modes.txt") == ["700", "700" if is_defended or runs == 1 else "755"]
        for folder in ordinary_box.runtime.glob("wakeful-runs-*"):
            shutil.rmtree(folder)
        assert not list(ordinary_box.runtime.glob("wakeful-runs-*"))


def test_every_folder_on_the_way_is_private(tmp_path: Path, open_umask: None) -> None:
    """`os.makedirs` uses the umask for all folders except the last one. `make_private` makes each one private."""
    os.makedirs(tmp_path / "old/a/b", 0o700)
    assert stat.S_IMODE((tmp_path / "old").stat().st_mode) == 0o755
    make_private(tmp_path / "new/a/b")
    make_private(tmp_path / "new/a/b")
    assert {stat.S_IMODE((tmp_path / one).stat().st_mode) for one in ("new", "new/a", "new/a/b")} == {0o700}
    (tmp_path / "file").write_text("")
    with pytest.raises(FileExistsError):
        make_private(tmp_path / "file")


def test_a_state_folder_that_vanished_is_private_again(tmp_path: Path, open_umask: None) -> None:
    """Storing the output of a run makes a missing state folder again, with mode 0700."""
    state = tmp_path / "state"
    Blobs(str(state / "blobs")).put(b"printed")
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in (state, *state.rglob("*")) if folder.is_dir()} == {0o700}
