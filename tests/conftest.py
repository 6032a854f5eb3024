"""Fixtures and hooks for all tests. They hide the machine's own environment and keep the tests from changing it."""

import contextlib
import functools
import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from e2e.box import Box
from wakeful.runners.isolation.namespace import leave_mounts

# A shared machine stalls for longer than any fixed deadline, so bench/ measures slowness, and no test does. The
# examples are the same every time: a failure here is a failure for everybody. `make test-long` tries other examples.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
settings.register_profile(
    "others", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True, max_examples=1000
)
settings.load_profile("suite")

# A shell that starts the suite in the background lets it ignore SIGINT, and all programs that tests start inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Each worker gets a mount namespace. A mount by one worker would otherwise invalidate the prepared mounts of another.
if "PYTEST_XDIST_WORKER" in os.environ:
    with contextlib.suppress(OSError):
        leave_mounts()

# Variables that would lead a test to the person's own daemon, specs, state or git identity, or let a run believe that
# systemd started it.
_PERSONAL = (
    "WAKEFUL_SPECS", "WAKEFUL_STATE", "WAKEFUL_SOCKET", "WAKEFUL_HTTP",
    "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "INVOCATION_ID", "JOURNAL_STREAM",
    "STATE_DIRECTORY", "RUNTIME_DIRECTORY", "CREDENTIALS_DIRECTORY",
    "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_CEILING_DIRECTORIES",
)  # fmt: skip


_BESIDE_LIBRARIES = (
    "test_api_fuzz.py",
    "test_requests_match_pydantic_ai.py",
    "test_scripted_provider.py",
    "test_streams_match_pydantic_ai.py",
)
_has_failed: list[bool] = []


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Give each suite its own folder for files.

    All suites of an account share pytest's usual folder. Each start closes it to other users, and so to the ordinary
    user of running tests (ordinary_user.py). The name is short because sockets lie there. Workers get the suite's
    folder.
    """
    if config.option.basetemp is None and not hasattr(config, "workerinput"):
        config.option.basetemp = tempfile.mkdtemp(prefix="wt-")
        config.add_cleanup(functools.partial(_remove_place, config.option.basetemp))


def _remove_place(place: str) -> None:
    """Remove the suite's folder. After a failed test it stays, so that a person can look at it."""
    if not _has_failed:
        shutil.rmtree(place, ignore_errors=True)


def pytest_sessionfinish(exitstatus: int) -> None:
    if exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        _has_failed.append(True)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip tests beside libraries that only `make test-long` installs. Other targets do not even import these tests."""
    wanted = config.option.markexpr or ""
    is_long = not wanted or "hypothesis" in wanted or ("long" in wanted and "not long" not in wanted)
    return True if not is_long and collection_path.name in _BESIDE_LIBRARIES else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Freeze the collected objects. They live to the end, and searching them for cycles took a tenth of the suite."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True)
def private_environment(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give each test a HOME of its own. It reads and writes no file of the person who runs it."""
    home = tmp_path_factory.mktemp("home")
    for name in _PERSONAL:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    for name, folder in (
        ("CONFIG", ".config"),
        ("STATE", ".local/state"),
        ("CACHE", ".cache"),
        ("DATA", ".local/share"),
    ):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(home / folder))
    runtime = home / "run"
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    # A repository made by a test must not depend on the person's ~/.gitconfig or the machine's /etc/gitconfig.
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "Test Person")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "person@example.invalid")
    return home


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    """Yield a box with a real daemon in a folder of its own. It ends with every process it started."""
    made = Box(tmp_path)
    yield made
    made.close()
