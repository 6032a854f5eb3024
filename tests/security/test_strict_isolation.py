"""The same hostile program under `isolation: strict`.

Files and processes that are not declared do not exist in its view.
"""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from security.conftest import Attack
from wakeful.runners.isolation.bubblewrap import find_obstacle, find_unenforced
from wakeful.runners.isolation.landlock import probe_abi

OBSTACLE = find_obstacle()
# Run by `make test-long`, because each test starts a daemon, which takes long.
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(OBSTACLE is not None, reason=f"nothing can be isolated strictly here: {OBSTACLE}"),
]


class StrictAttack(Attack):
    """The attack, carried out without isolation and in a view of its own."""

    def carry_out(self, *, keys: str = "", **order: Any) -> None:
        for name, level in (("open", "none"), ("shut", "strict")):
            self.declare(name, level, **order)
            with (self.specs / f"{name}.yaml").open("a") as spec:
                spec.write(keys)
        self.start()
        for name in ("open", "shut"):
            self.settle(name, runs=1)

    def assert_stopped(self, words: str = "No such file or directory") -> None:
        assert self.outcome("open") == "succeeded", self.told("open")
        assert self.outcome("shut") == "failed", self.told("shut")
        assert words in self.told("shut")
        found = self.finished("shut")["isolation"]
        # `derived` may be present, too: it names the interpreter that runs these tests, if that lies in a venv.
        assert (found["level"], found["unenforced"]) == ("strict", list(find_unenforced(False)))


@pytest.fixture
def strict(tmp_path: Path) -> Iterator[StrictAttack]:
    made = StrictAttack(tmp_path)
    yield made
    made.close()


def test_the_home_of_the_person_is_empty(strict: StrictAttack) -> None:
    """There are no keys, no history and no cloud credentials in it, whatever their names are."""
    strict.carry_out(do="read", path="~/.ssh/id_ed25519")
    strict.assert_stopped()
    assert "PRIVATE KEY" in strict.told("open") and "PRIVATE KEY" not in strict.told("shut")


@pytest.mark.parametrize(
    "name", ["sessions.d/shut.yaml", "wakeful.yaml", "../home", "../state/log/events.db", "../state/blobs"]
)
def test_what_is_not_bound_is_not_even_there(strict: StrictAttack, name: str) -> None:
    """The view has no specs, no settings, no log and no outputs of other sessions."""
    # An earlier run left these folders, so that the attack always has something to find.
    for folder in (strict.state, strict.state / "blobs"):
        folder.mkdir(mode=0o700)
    strict.carry_out(do="stat", path=str((strict.project / name).resolve()))
    strict.assert_stopped()


def test_nothing_is_written_beside_its_outputs(strict: StrictAttack) -> None:
    """The project is read-only except for the declared outputs, and the run has a /tmp of its own."""
    with tempfile.TemporaryDirectory(prefix="wakeful-attack-") as shared:
        for place in (strict.project / "planted.py", Path(shared) / "planted", Path("/var/tmp") / Path(shared).name):
            name = f"shut{place.name.replace('.', '')}"
            strict.declare(name, "strict", do="write", path=str(place), text="import os")
            strict.start() if strict.daemon is None else None
            strict.settle(name, runs=1)
            assert not place.exists()
        strict.declare("open", "none", do="write", path=str(Path(shared) / "planted"), text="import os")
        strict.settle("open", runs=1)
        assert (Path(shared) / "planted").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root could read the secrets of /etc in the first place")
def test_the_secrets_of_the_system_are_shut(strict: StrictAttack) -> None:
    """The same holds if the daemon is root."""
    strict.carry_out(do="read", path="/etc/shadow")
    strict.assert_stopped("Permission denied")


@pytest.mark.parametrize("do", ["kill", "trace", "limit"])
def test_other_processes_are_not_there(strict: StrictAttack, bystander: subprocess.Popen[bytes], do: str) -> None:
    """A run can neither end nor look into other processes: their numbers mean nothing in its view."""
    for name, level in (("shut", "strict"), ("open", "none")):
        strict.declare(name, level, do=do, pid=bystander.pid)
        if strict.daemon is None:
            strict.start()
        strict.settle(name, runs=1)
        if name == "shut":
            assert bystander.poll() is None
    strict.assert_stopped("not permitted" if do == "limit" else "No such process")


def test_the_environment_of_another_process_is_not_there(
    strict: StrictAttack, bystander: subprocess.Popen[bytes]
) -> None:
    """The environments of other programs can hold tokens."""
    strict.carry_out(do="read", path=f"/proc/{bystander.pid}/environ")
    strict.assert_stopped()


def test_a_socket_that_is_a_file_is_not_there(strict: StrictAttack) -> None:
    """D-Bus, Docker, an agent with keys: Landlock cannot prevent a `connect` to a path.

    So the view leaves these sockets out.
    """
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(strict.folder / "bus"))
        server.listen()
        strict.carry_out(do="connect_path", path=str(strict.folder / "bus"))
        strict.assert_stopped()


@pytest.mark.parametrize("keys", ["", "network: true\n"])
def test_abstract_sockets_are_not_there(strict: StrictAttack, keys: str) -> None:
    """Without a network the view has no abstract sockets. With one, Landlock closes them."""
    if keys and probe_abi() < 6:
        pytest.skip("this kernel's Landlock cannot shut abstract sockets: Linux 6.12 can")
    name = f"wakeful-strict-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"\0{name}")
        server.listen()
        strict.carry_out(do="connect_abstract", address=name, keys=keys)
        strict.assert_stopped("not permitted" if keys else "Connection refused")


@pytest.mark.parametrize("kind", ["SOCK_STREAM", "SOCK_DGRAM"])
def test_nothing_leaves_by_the_network(strict: StrictAttack, kind: str) -> None:
    """The view has no network."""
    with socket.socket(socket.AF_INET, getattr(socket, kind)) as server:
        server.bind(("127.0.0.1", 0))
        if kind == "SOCK_STREAM":
            server.listen()
        strict.carry_out(do="connect", kind=kind, port=server.getsockname()[1])
        strict.assert_stopped("Permission denied")


def test_what_is_declared_leaves(strict: StrictAttack) -> None:
    """`network: [host:port]` opens that port, and no other."""
    if probe_abi() < 4:
        pytest.skip("this kernel's Landlock knows no ports: Linux 6.7 does")
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_server(("127.0.0.1", 0)) as other:
        for name, told in (("listed", server), ("unlisted", other)):
            strict.declare(name, "strict", do="connect", kind="SOCK_STREAM", port=told.getsockname()[1])
            with (strict.specs / f"{name}.yaml").open("a") as spec:
                spec.write(f"network: ['localhost:{server.getsockname()[1]}']\n")
        strict.start()
        assert strict.settle("listed", runs=1)["last_run"]["outcome"] == "succeeded", strict.told("listed")
        assert strict.settle("unlisted", runs=1)["last_run"]["outcome"] == "failed"
        assert any("hosts" in words for words in strict.finished("listed")["isolation"]["unenforced"])


def test_the_control_socket_is_there_for_its_own_session_alone(strict: StrictAttack) -> None:
    """With its token, the run may leave a note. Without it, the run is refused, also if it tries to remove its mark."""
    strict.declare("noting", "strict", do="call_as_itself", target="/call/note", body={"text": "from inside"})
    strict.declare("nobody", "strict", do="call", body={"name": "noting"})
    strict.declare("shedding", "strict", do="shed_mark")
    strict.start()
    for name in ("noting", "nobody", "shedding"):
        strict.settle(name, runs=1)
    assert strict.outcome("noting") == "succeeded", strict.told("noting")
    assert any(record["kind"] == "note_added" for record in strict.log("noting"))
    assert strict.outcome("nobody") == "failed" and "must use that run's token" in strict.told("nobody")
    assert strict.outcome("shedding") == "failed"


def test_what_forks_away_ends_with_its_run(strict: StrictAttack) -> None:
    """Two forks and a process session of its own do not leave the namespace."""
    strict.declare("forking", "strict", do="fork_away", pid_file=str(strict.project / "out/forking.txt"))
    strict.start()
    strict.settle("forking", runs=1)
    assert strict.outcome("forking") == "succeeded", strict.told("forking")
    left = [path for path in Path("/proc").glob("[0-9]*/cmdline") if b"forking.json" in _read(path)]
    assert not left


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
