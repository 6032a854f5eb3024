"""Run folders lie in memory where possible, belong to the daemon's user alone, and begin empty."""

import os
import stat

import pytest

from wakeful.runners.run import run_folders as place
from wakeful.runners.run.run_folders import open_run_folders


def test_the_runtime_folder_is_taken_and_what_was_left_in_it_removed(tmp_path):
    environ = {"RUNTIME_DIRECTORY": f"{tmp_path}:/elsewhere", "XDG_RUNTIME_DIR": "/nowhere"}
    first = open_run_folders("/state", environ)
    assert os.path.dirname(first) == str(tmp_path)
    assert stat.S_IMODE(os.stat(first).st_mode) == 0o700
    os.mkdir(f"{first}/left-behind")
    assert open_run_folders("/state", environ) == first
    assert os.listdir(first) == []
    assert open_run_folders("/another-state", environ) != first


@pytest.mark.parametrize("trap", ["symlink", "file"])
def test_a_name_that_somebody_else_took_is_not_followed(tmp_path, trap):
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "precious").touch()
    base = tmp_path / "run"
    base.mkdir()
    environ = {"XDG_RUNTIME_DIR": str(base)}
    name = open_run_folders(str(tmp_path), environ)
    os.rmdir(name)
    os.symlink(victim, name) if trap == "symlink" else open(name, "w").close()
    second = open_run_folders(str(tmp_path), environ)
    assert second != name
    assert (victim / "precious").exists()
    os.rmdir(second)


def test_without_any_such_place_they_lie_in_the_state_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(place, "_make_own", lambda folder: False)
    (tmp_path / "runs" / "left-behind").mkdir(parents=True)
    folder = open_run_folders(str(tmp_path), {"XDG_RUNTIME_DIR": "relative"})
    assert folder == str(tmp_path / "runs")
    assert os.listdir(folder) == []
