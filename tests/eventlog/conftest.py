"""A log of each engine in a folder of its own, closed at the end whatever the test did."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eventlog.engines import ENGINES
from wakeful.eventlog.contract import EventLog


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test of the contract runs on every engine that offers the ports its module (`NEEDS`) or itself (`@needs`)
    names."""
    if "engine" in metafunc.fixturenames:
        ports = {*getattr(metafunc.module, "NEEDS", ()), *getattr(metafunc.function, "needs", ())}
        metafunc.parametrize("engine", [name for name, engine in ENGINES.items() if ports <= engine.ports])


@pytest.fixture
def open_again(engine: str, tmp_path: Path) -> Iterator[Callable[[], EventLog]]:
    """Opens the test's one log; opened again, it is closed first, as a restart would."""
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
