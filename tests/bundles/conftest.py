"""Two places: one to save from, one to load into."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bundles.bundle_samples import Place


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path / "here")
    place.fill()
    yield place
    place.log.close()


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path / "there")
    yield place
    place.log.close()
