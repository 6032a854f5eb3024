"""Gives each test a scripted model.

Closing it closes all connections, and a surprise of the provider fails the test.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agents.provider import Provider


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider() as made:
        yield made
    assert made.surprises == []
