"""With a list of ports, a run can use no other port.

Every other way to a port is tried with the whole network open, and with a list that does not name the port. Each kind
of user has one daemon, with one run for each level; a run tries all ways. A way that this kernel does not have is
skipped, and reported.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.box import Box
from ordinary_user import OrdinaryBox, OrdinaryUser
from reserved_port import held_port
from security.conftest import Attack
from wakeful.runners.isolation.bubblewrap import find_obstacle
from wakeful.runners.isolation.landlock import probe_abi
from wakeful.runners.isolation.seccomp import is_known_machine

PROGRAM = Path(__file__).with_name("port_attempts.py")
SPEC = """
objective: Try every way out.
isolation: {level}
network: {network}
first: run
bindings: {{ways: {{file: port_attempts.py}}}}
run: {{command: [python3, port_attempts.py, {ports}], retries: 0, timeout: 60s}}
"""
OBSTACLE = find_obstacle()
# The level and the network of each session. The list of `named` has a host name, which must be looked up.
SESSIONS = {
    "open": ("standard", "true"),
    "standard": ("standard", "['localhost:9', '127.0.0.1:9', '[::1]:9']"),
    "named": ("standard", "['example.org:9']"),
    "strict": ("strict", "['localhost:9']"),
}
LEVELS = [
    "standard",
    pytest.param(
        "strict", marks=pytest.mark.skipif(OBSTACLE is not None, reason=f"NOT TESTED under strict: {OBSTACLE}")
    ),
]
WAYS = [
    "tcp", "tcp over ipv6", "ipv4 in ipv6", "mptcp", "mptcp over ipv6", "mptcp, without blocking", "mptcp that listens",
    "fast open by sendto", "fast open by sendto over ipv6", "fast open by sendmsg", "fast open by connect",
    "listen without bind", "listen without bind over ipv6", "bind to any port",
    "udp", "udp-lite", "sctp", "smc", "vsock", "vsock datagrams", "raw", "raw over ipv6", "packets", "netlink to other programs",
]  # fmt: skip

pytestmark = [
    pytest.mark.skipif(probe_abi() < 4, reason="PORTS NOT TESTED: this kernel's Landlock knows none (Linux 6.7 does)"),
    pytest.mark.skipif(
        not is_known_machine(), reason="PORTS NOT TESTED: there is no system call filter for this architecture"
    ),
]


class Tried:
    """The result of each way in each session, and the unenforced parts from the record of its run.

    `by_person` has the results of a person who starts the program without wakeful.
    """

    def __init__(self, box: Box, by_person: dict[str, str]) -> None:
        self.by_person = by_person
        names = [name for name in SESSIONS if name != "strict" or OBSTACLE is None]
        runs = {name: box.wait_at_rest(name, runs=1) for name in names}
        assert {row["last_run"]["outcome"] for row in runs.values()} == {"succeeded"}, {
            name: box.ask("output", name) for name in names
        }
        self.ended: dict[str, dict[str, str]] = {name: json.loads(box.ask("output", name)) for name in names}
        self.unenforced = {name: _find_unenforced(box, name) for name in names}


def _find_unenforced(box: Box, name: str) -> list[str]:
    return next(
        record["payload"]["isolation"]["unenforced"] for record in box.log(name) if record["kind"] == "run_finished"
    )


@contextlib.contextmanager
def serve() -> Iterator[str]:
    """Start servers that no list names. Yield their ports, as words of a command."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_server(("::1", 0), family=socket.AF_INET6) as server6,
    ):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
            datagrams.bind(("127.0.0.1", 0))
            yield ", ".join(f"'{one.getsockname()[1]}'" for one in (server, server6, datagrams))


def try_all(box: Box) -> Tried:
    shutil.copy(PROGRAM, box.folder / "port_attempts.py")
    with serve() as ports:
        for name, (level, network) in SESSIONS.items():
            box.spec(name, SPEC.format(level=level, network=network, ports=ports))
        box.start()
        try:
            words = [*box.wrap, "python3", "port_attempts.py", *ports.replace("'", "").split(", ")]
            person = subprocess.run(words, cwd=box.folder, capture_output=True, check=True)
            return Tried(box, json.loads(person.stdout))
        finally:
            box.close()


@pytest.fixture(scope="module", params=["ordinary user", "root"])
def tried(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tried:
    folder = tmp_path_factory.mktemp("ports")
    if request.param == "ordinary user":
        user = OrdinaryUser(folder / "home")
        (folder / "project").mkdir()
        return try_all(OrdinaryBox(folder / "project", user))
    if os.geteuid() != 0:
        pytest.skip("NOT TESTED as root: the suite is not run by root")
    return try_all(Box(folder))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("way", WAYS)
def test_a_port_that_is_not_listed_is_reached_in_no_way(tried: Tried, way: str, level: str) -> None:
    """The way works with `network: true`, and fails with a list of other ports."""
    if tried.ended["open"][way] != "passed":
        pytest.skip(f"NOT TESTED: {way} is not to be had here, whatever is declared ({tried.ended['open'][way]})")
    assert tried.ended[level][way] != "passed"


def test_every_way_is_tried(tried: Tried) -> None:
    """The program tries all ways in every session. With the whole network open, a run has all that a person has.

    Only raw sockets and packets take a capability that runs do not have. The usual ways work on every machine.
    """
    assert {name: list(ended) for name, ended in tried.ended.items()} == dict.fromkeys(tried.ended, WAYS)
    passed, had = (
        {way for way, ended in one.items() if ended == "passed"} for one in (tried.ended["open"], tried.by_person)
    )
    assert passed == had - {"raw", "raw over ipv6", "packets"}
    assert passed >= {"tcp", "fast open by sendto", "listen without bind", "udp"}


def test_names_are_looked_up_by_udp_and_by_nothing_else(tried: Tried) -> None:
    """A list with a host name leaves UDP open, and the run's record says so.

    A list of addresses closes it.
    """
    assert {way for way, ended in tried.ended["named"].items() if ended == "passed"} == {"udp"}
    assert any(words.startswith("UDP:") for words in tried.unenforced["named"])
    for level in {"standard", "strict"} & set(tried.unenforced):
        assert not any(words.startswith("UDP:") for words in tried.unenforced[level])
        assert any(words.startswith("hosts:") for words in tried.unenforced[level])


def test_programs_can_fall_back(tried: Tried) -> None:
    """A closed way gives the error of a kernel without that feature, so that programs use plain TCP instead."""
    if tried.ended["open"]["mptcp"] == "passed":
        assert tried.ended["standard"]["mptcp"] == "EPROTONOSUPPORT"
    assert tried.ended["standard"]["fast open by sendto"] in ("EOPNOTSUPP", "ENOTSUP")
    assert tried.ended["standard"]["fast open by connect"] == "ENOPROTOOPT"


def test_a_probe_is_held_to_its_sessions_list(attack: Attack) -> None:
    """A probe has the same limits as its session's runs, also for MPTCP."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        text = f"import socket; socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262).connect(('127.0.0.1', {server.getsockname()[1]}))"
        probe = json.dumps(["python3", "-c", text])
        for name, network in (("open", "true"), ("shut", "['localhost:9']")):
            attack.spec_raw(
                name,
                f"objective: x\nfirst: adopt\nnetwork: {network}\nbindings: {{asked: {{probe: {probe}, check_every: 1h}}}}\nrun: {{command: ['true']}}\n",
            )
        attack.start()
        unheld, held = attack.words("show", "open"), attack.words("show", "shut")
    if "Protocol not supported" in unheld:
        pytest.skip("NOT TESTED: this kernel has no MPTCP")
    assert "failed" not in unheld
    assert "Protocol not supported" in held


def test_a_declared_port_is_listened_on(attack: Attack) -> None:
    """`:PORT` allows a run to listen on that port. Without it, not even a socket without a port may listen."""
    with held_port() as held:
        port = held.getsockname()[1]
    text = f"import socket; s = socket.create_server(('127.0.0.1', {port})); print('listens')"
    for name, network in (("declared", f"[':{port}']"), ("undeclared", f"['localhost:{port}']")):
        command = json.dumps(["python3", "-c", text])
        attack.spec_raw(
            name,
            f"objective: x\nfirst: run\nnetwork: {network}\nbindings: {{e: {{every: 1h}}}}\nrun: {{command: {command}, retries: 0}}\n",
        )
    attack.start()
    for name in ("declared", "undeclared"):
        attack.settle(name, runs=1)
    assert attack.told("declared") == "listens\n"
    assert any(words.startswith("listening:") for words in attack.finished("declared")["isolation"]["unenforced"])
    attack.assert_failed("undeclared", "Permission denied")
