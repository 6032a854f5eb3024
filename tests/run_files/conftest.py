"""The fixture `world`: one world per test."""

from pathlib import Path

import pytest

from run_files.recorded_runs import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)
