"""What every test gets: an environment in which the machine it runs on cannot be seen, and nothing of it can be changed."""

import contextlib
import functools
import gc
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from e2e.box import Box
from wakeful.runners.isolation.namespace import leave_mounts

# A shared machine stalls for longer than any fixed deadline: slowness is measured by bench/, never by a test.
# The same examples every time: what fails here fails for everybody, and what passed passes. `make test-long` looks for others.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
settings.register_profile(
    "others", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True, max_examples=1000
)
settings.load_profile("suite")

# What one worker mounts is not seen by the others, where a run's mounts that were made ahead would no longer be good.
if "PYTEST_XDIST_WORKER" in os.environ:
    with contextlib.suppress(OSError):
        leave_mounts()

# What would lead a test to the person's own daemon, specs, state or git identity, or a run to believe systemd started it.
_PERSONAL = (
    "WAKEFUL_SPECS", "WAKEFUL_STATE", "WAKEFUL_SOCKET", "WAKEFUL_HTTP",
    "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "INVOCATION_ID", "JOURNAL_STREAM",
    "STATE_DIRECTORY", "RUNTIME_DIRECTORY", "CREDENTIALS_DIRECTORY",
    "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_CEILING_DIRECTORIES",
)  # fmt: skip


_BESIDE_LIBRARIES = (
    "test_any_request.py",
    "test_encoders_beside_library.py",
    "test_provider.py",
    "test_streams_beside_library.py",
)
_has_failed: list[bool] = []


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Every suite has a place of its own for its files: in the one that pytest shares among all suites of an account, each start shuts out other
    users, and with them the ordinary user of tests that are under way (ordinary_user.py). A short name: sockets lie there. Workers are handed the suite's."""
    if config.option.basetemp is None and not hasattr(config, "workerinput"):
        config.option.basetemp = tempfile.mkdtemp(prefix="wt-")
        config.add_cleanup(functools.partial(_remove_place, config.option.basetemp))


def _remove_place(place: str) -> None:
    """Where a test failed, what it left stays to be looked at."""
    if not _has_failed:
        shutil.rmtree(place, ignore_errors=True)


def pytest_sessionfinish(exitstatus: int) -> None:
    if exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        _has_failed.append(True)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Tests beside libraries that `make test-long` installs are not even imported by other targets."""
    wanted = config.option.markexpr or ""
    is_long = not wanted or "hypothesis" in wanted or ("long" in wanted and "not long" not in wanted)
    return True if not is_long and collection_path.name in _BESIDE_LIBRARIES else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is collected lasts: looking among it for cycles, now and in every test, took a tenth of the suite."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True)
def private_environment(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give each test a HOME of its own, so that it finds and leaves nothing of the person who runs it."""
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
    """A real daemon in a folder of its own, gone with everything it started."""
    made = Box(tmp_path)
    yield made
    made.close()
