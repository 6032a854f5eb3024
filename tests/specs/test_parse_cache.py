"""The cache of readings: equal to a fresh reading, and not used if something they depend on has changed."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from wait_conditions import eventually
from wakeful.settings import ProjectReader, ProjectReading

SPEC = "objective: Keep.\nbindings: {input: {file: data.csv}}\nrun: {command: [tool/run, data.csv]}\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "sessions.d").mkdir()
    (tmp_path / "sessions.d" / "one.yaml").write_text(SPEC)
    return tmp_path


def read(project: Path) -> ProjectReading:
    """Read the project as the next daemon does, by its own reader, and store the reading in the cache."""
    reader = ProjectReader(project / "sessions.d", {}, project / "specs.cache")
    reading = reader.read()
    reader.keep()
    return reading


def test_a_kept_reading_is_the_reading(project: Path) -> None:
    assert read(project) == read(project) == ProjectReader(project / "sessions.d", {}).read()


def test_only_its_owner_can_read_what_was_kept(project: Path) -> None:
    read(project)
    assert (project / "specs.cache").stat().st_mode & 0o777 == 0o600


def test_an_edit_between_two_daemons_is_read(project: Path) -> None:
    read(project)
    (project / "sessions.d" / "one.yaml").write_text(SPEC.replace("Keep.", "Keep more."))
    assert read(project).declared["one"].spec.objective == "Keep more."


def test_a_removed_file_is_not_declared_again(project: Path) -> None:
    read(project)
    (project / "sessions.d" / "one.yaml").unlink()
    assert not read(project).declared


def test_other_defaults_are_applied_to_files_that_did_not_change(project: Path) -> None:
    read(project)
    (project / "wakeful.yaml").write_text("defaults: {priority: 77}\n")
    assert read(project).declared["one"].spec.priority == 77


def test_a_program_that_came_since_is_noticed(project: Path) -> None:
    assert read(project).declared["one"].spec.program is None
    (project / "tool").mkdir()
    (project / "tool" / "run").write_text("#!/bin/sh\n")
    assert read(project).declared["one"].spec.program == "tool/run"


def test_what_is_wrong_with_a_file_is_said_at_every_start(project: Path) -> None:
    (project / "sessions.d" / "two.yaml").write_text("objektive: Misspelt.\n")
    assert read(project).refused == read(project).refused != {}


@pytest.mark.parametrize("content", [b"", b"\x00garbage", b"\x93\x01\x02\x03"])
def test_a_damaged_cache_costs_a_reading_and_nothing_else(project: Path, content: bytes) -> None:
    first = read(project)
    (project / "specs.cache").write_bytes(content)
    assert read(project) == first


def test_a_cache_that_cannot_be_written_is_no_error(project: Path) -> None:
    (project / "specs.cache").mkdir()
    assert read(project).declared


def test_defaults_that_change_while_it_lives_apply_to_what_was_kept_as_well(project: Path) -> None:
    """A cached reading belongs to the defaults it was made under.

    The file may be untouched since before the restart.
    """
    os.utime(project / "sessions.d" / "one.yaml", (1, 1))
    eventually(lambda: time.time() - (project / "sessions.d" / "one.yaml").stat().st_ctime > 2.1)
    read(project)
    reader = ProjectReader(project / "sessions.d", {}, project / "specs.cache")
    assert reader.read().declared["one"].spec.priority == 50
    (project / "wakeful.yaml").write_text("defaults: {priority: 77}\n")
    assert reader.read().declared["one"].spec.priority == 77
