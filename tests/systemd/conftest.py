"""A fixture that boots one machine for each module, which takes half a second.

A test leaves the machine as it found it, or says what it needs.
"""

from collections.abc import Iterator

import pytest

from systemd.systemd_machine import Machine, why_not


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    if (reason := why_not()) is not None:
        pytest.skip(f"SYSTEMD NOT BOOTED, its part not tested: {reason}")
    booted = Machine(tmp_path_factory.mktemp("systemd"))
    try:
        booted.boot()
        yield booted
    finally:
        booted.close()
