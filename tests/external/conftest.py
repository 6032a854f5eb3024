"""Fixtures: one box and one scripted model for each test, and each installed agent in turn."""

from __future__ import annotations

import pytest

# An imported fixture. The assignment makes it count as used.
from agents.conftest import provider as provider
from external.agent_programs import PROGRAMS, Program


@pytest.fixture(params=PROGRAMS, ids=lambda program: program.name)
def program(request: pytest.FixtureRequest) -> Program:
    chosen: Program = request.param
    if not chosen.place.is_dir():
        pytest.skip(f"{chosen.name} is not installed: `make test-acp` does that, and drives it")
    return chosen
