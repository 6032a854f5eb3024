"""Staging areas and undeclared files when the file system refuses a call or holds too many files."""

from pathlib import Path

import pytest

from wakeful.runners.outputs import landing
from wakeful.runners.outputs.undeclared_changes import find_undeclared, survey


def test_an_area_that_cannot_be_removed_does_not_fail_the_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    (tmp_path / "area").mkdir()
    monkeypatch.setattr(landing.shutil, "rmtree", lambda path, ignore_errors: None)
    monkeypatch.setattr(landing.os, "chmod", refuse)
    landing.remove_area(str(tmp_path / "area"))


def test_that_not_everything_was_checked_is_said_beside_many_paths(tmp_path: Path) -> None:
    before = survey([str(tmp_path)], ())
    for number in range(1100):
        (tmp_path / f"{number}.txt").touch()
    told = find_undeclared(before, str(tmp_path), (), ())
    assert told[20].endswith(" more") and told[21:] == ("not everything was checked: too many files",)
