"""Staging areas and undeclared files when the file system refuses a call or holds too many files."""

import os
import shutil
from pathlib import Path

import pytest

from wakeful.runners.outputs import landing
from wakeful.runners.outputs.undeclared_changes import find_undeclared, survey


@pytest.mark.asyncio
async def test_an_area_that_cannot_be_removed_does_not_fail_the_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sweep goes on to the other areas, and leaves those that must still land."""
    for name in ("one", "two", "three", "four"):
        (tmp_path / name / "folder").mkdir(parents=True)
    stuck, *_, wanted = os.listdir(tmp_path)
    remove = shutil.rmtree

    def refuse(path: str, mode: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    def remove_others(path: str, ignore_errors: bool) -> None:
        if path != str(tmp_path / stuck):
            remove(path, ignore_errors=ignore_errors)

    monkeypatch.setattr(landing.shutil, "rmtree", remove_others)
    monkeypatch.setattr(landing.os, "chmod", refuse)
    sweeping = landing.Landing(str(tmp_path), str(tmp_path / "aside"), lambda _: None, tuple)
    sweeping.sweep([wanted])
    await sweeping.close()
    assert sorted(os.listdir(tmp_path)) == sorted([stuck, wanted])


def test_that_not_everything_was_checked_is_said_beside_many_paths(tmp_path: Path) -> None:
    before = survey([str(tmp_path)], ())
    for number in range(1100):
        (tmp_path / f"{number}.txt").touch()
    told = find_undeclared(before, str(tmp_path), (), ())
    assert told[20].endswith(" more") and told[21:] == ("not everything was checked: too many files",)
