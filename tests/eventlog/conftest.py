"""A log of each engine in its own folder. It is closed after the test in any case."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eventlog.engines import ENGINES
from wakeful.eventlog.contract import EventLog


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test of the contract on every engine with the ports that its module (`NEEDS`) or the test itself
    (`@needs`) names.
    """
    if "engine" in metafunc.fixturenames:
        ports = {*getattr(metafunc.module, "NEEDS", ()), *getattr(metafunc.function, "needs", ())}
        metafunc.parametrize("engine", [name for name, engine in ENGINES.items() if ports <= engine.ports])


@pytest.fixture
def open_again(engine: str, tmp_path: Path) -> Iterator[Callable[[], EventLog]]:
    """Open the test's log. A second call closes it first, as a restart would."""
    opened: list[EventLog] = []

    def open_log() -> EventLog:
        for log in opened:
            log.close()
        opened.append(ENGINES[engine].open(tmp_path / "state"))
        return opened[-1]

    yield open_log
    for log in opened:
        log.close()


@pytest.fixture
def log(open_again: Callable[[], EventLog]) -> EventLog:
    return open_again()
