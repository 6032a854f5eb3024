"""The fixture of these tests: a world for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from model_context.recorded_session import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.log.close()
