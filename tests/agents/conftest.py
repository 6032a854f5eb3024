"""A scripted model a test, gone with every connection; a test whose client surprised it fails."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agents.provider import Provider


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider() as made:
        yield made
    assert made.surprises == []
