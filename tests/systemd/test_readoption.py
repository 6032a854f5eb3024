"""Runs under a real systemd outlive a daemon that is killed, hangs or is restarted.

They end when the daemon is stopped for good.
"""

import json
from typing import Any

import pytest

from systemd.systemd_machine import ACCOUNT, SPECS, UID, Machine
from wait_conditions import eventually
from wakeful.runners.process.procfs import can_tell_ends

pytestmark = [
    # Run by `make test-long`, because these tests boot a machine and start daemons.
    pytest.mark.long,
    pytest.mark.skipif(
        not can_tell_ends(), reason="RUNS END WITH THEIR DAEMON HERE, outliving it not tested: Linux 6.15 is needed"
    ),
]

SERVICE, SOCKET = f"wakeful@{ACCOUNT}.service", f"wakeful@{ACCOUNT}.socket"
HOME = f"/home/{ACCOUNT}"
SPEC = """
objective: Work on, whatever becomes of the daemon.
allow: {write: [out]}
bindings:
  i: {file: in.txt, settle: 10ms}
  o: {file: out/done, access: write}
run:
  script: |
    echo $$ > out/pid
    test ! -e out/forging || python3 out/forge.py
    echo before
    while [ ! -e go ]; do sleep 0.05; done
    echo after
    cp in.txt out/done
"""

PLACED = """
objective: Work in a place of its own.
bindings:
  m: {file: more.txt, settle: 10ms}
  o: {file: made.txt, access: write}
run: {script: "sleep 600", workspace: copy}
"""

PROBING = """
objective: Wait for a probe that hangs the first time.
bindings:
  p: {probe: [sh, -c, "test ! -e out/probe || exit 0; echo $$ > out/probe; exec sleep 600"], timeout: 1h}
allow: {write: [out]}
run: {command: [true]}
"""
# Sends the messages of a daemon: keep this process, forget that run, and a status.
FORGE = r"""
import os, socket
channel = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
channel.connect("/run/systemd/notify")
socket.send_fds(channel, [b"FDSTORE=1\nFDNAME=run-x.1"], [os.pidfd_open(os.getpid())])
channel.send(b"FDSTOREREMOVE=1\nFDNAME=run-" + os.environb[b"WAKEFUL_RUN"])
channel.send(b"STATUS=forged")
open("out/forged", "w").write("sent")
"""


@pytest.fixture(scope="module")
def service(machine: Machine) -> Machine:
    machine.write(f"{HOME}/out/.keep", "")
    machine.write(SPECS / "work.yaml", SPEC)
    machine.drop_in(SERVICE, "[Service]\nRestartSec=100ms\n")
    machine.write(f"{HOME}/in.txt", "0\n")
    machine.write(f"{HOME}/go", "")
    machine.run("wakeful", "install", "--system", "--account", ACCOUNT, "--specs", str(SPECS))
    eventually(lambda: machine.read(f"{HOME}/out/done") == "0\n")
    return machine


def ask(machine: Machine, *words: str) -> str:
    return machine.run("wakeful", *words, is_person=True)


def row(machine: Machine) -> dict[str, Any]:
    return next(one for one in json.loads(ask(machine, "list", "--json")) if one["name"] == "work")


def main_pid(machine: Machine) -> str:
    return machine.show(SERVICE, "MainPID")[0]


def begin(machine: Machine, content: str) -> tuple[str, int]:
    """Start a run, and wait until systemd keeps its descriptors. Return its process and the number of earlier runs."""
    machine.run("rm", "-f", f"{HOME}/go", f"{HOME}/out/pid")
    runs = row(machine)["runs"]
    machine.write(f"{HOME}/in.txt", content)
    pid = eventually(lambda: machine.read(f"{HOME}/out/pid").strip())
    eventually(lambda: machine.show(SERVICE, "NFileDescriptorStore") == ["5"])
    return pid, runs


def is_alive(machine: Machine, pid: str) -> bool:
    return machine.ask("kill", "-0", pid).returncode == 0


def end_well(machine: Machine, content: str, runs: int) -> None:
    """Let the run end, and assert that it succeeds under the present daemon as it would have under its first."""
    machine.write(f"{HOME}/go", "")
    found = eventually(lambda: (one := row(machine))["state"] != "running" and one)
    assert (found["runs"], found["last_run"]["outcome"]) == (runs + 1, "succeeded")
    assert machine.read(f"{HOME}/out/done") == content
    assert ask(machine, "output", "work") == "before\nafter\n"
    kinds = [json.loads(line)["kind"] for line in ask(machine, "log", "work", "--json").splitlines()]
    ours = [kind for kind in kinds if kind.startswith("run_")][-3:]
    assert ours == ["run_started", "run_readopted", "run_finished"]
    eventually(lambda: machine.show(SERVICE, "NFileDescriptorStore") == ["0"])


def test_a_run_outlives_a_daemon_that_is_killed(service: Machine) -> None:
    """After kill -9, systemd starts a new daemon.

    It takes over the run, its output from the beginning, and its exit code.
    """
    pid, runs = begin(service, "killed\n")
    before = main_pid(service)
    service.run("kill", "-KILL", before)
    eventually(lambda: main_pid(service) not in ("0", before) and service.show(SERVICE, "SubState") == ["running"])
    assert is_alive(service, pid)
    end_well(service, "killed\n", runs)


def test_a_run_outlives_a_restart(service: Machine) -> None:
    """`systemctl restart` does not wait for the run. Nothing is interrupted, and the journal says so."""
    pid, runs = begin(service, "restarted\n")
    before = main_pid(service)
    service.run("systemctl", "restart", SERVICE)
    assert is_alive(service, pid) and main_pid(service) != before
    assert [one for one in service.entries("-u", SERVICE) if "left to the next daemon" in str(one["MESSAGE"])]
    end_well(service, "restarted\n", runs)


def test_a_run_that_ends_with_its_daemon_takes_no_other_along(service: Machine) -> None:
    """A run in a workspace is interrupted and repeated at `systemctl restart`. The other run outlives the restart."""
    service.write(f"{HOME}/wakeful.yaml", "stop_grace: 0s\n")
    service.write(SPECS / "placed.yaml", PLACED)
    service.write(f"{HOME}/more.txt", "1\n")
    # The command fails until the daemon has read the spec.
    eventually(lambda: "running" in service.ask("wakeful", "list", "placed", is_person=True).stdout)
    pid, runs = begin(service, "others\n")
    service.run("systemctl", "restart", SERVICE)
    assert is_alive(service, pid)
    eventually(
        lambda: (
            (kinds := ask(service, "log", "placed", "--json")).count('"run_started"') == 2 and '"interrupted"' in kinds
        )
    )
    ask(service, "cancel", "placed")
    service.run("rm", str(SPECS / "placed.yaml"), f"{HOME}/wakeful.yaml")
    end_well(service, "others\n", runs)


def test_a_run_that_ends_while_no_daemon_is_there_is_recorded_as_it_ended(service: Machine) -> None:
    """Its exit code and output are kept for the next daemon."""
    service.drop_in(SERVICE, "[Service]\nRestartSec=3s\n")
    pid, runs = begin(service, "alone\n")
    service.run("kill", "-KILL", main_pid(service))
    service.write(f"{HOME}/go", "")
    eventually(lambda: not is_alive(service, pid))
    service.drop_in(SERVICE, "[Service]\nRestartSec=100ms\n")
    eventually(lambda: service.show(SERVICE, "SubState") == ["running"])
    found = eventually(lambda: (one := row(service))["state"] != "running" and one)
    assert (found["runs"], found["last_run"]["outcome"]) == (runs + 1, "succeeded")
    assert service.read(f"{HOME}/out/done") == "alone\n"


def test_what_no_run_claims_ends_with_its_daemon(service: Machine) -> None:
    """The next daemon finds a probe that hung when the first was killed, in its control group, and ends it."""
    service.write(SPECS / "probing.yaml", PROBING)
    probe = eventually(lambda: service.read(f"{HOME}/out/probe").strip())
    pid, runs = begin(service, "strays\n")
    before = main_pid(service)
    service.run("kill", "-KILL", before)
    eventually(lambda: main_pid(service) not in ("0", before) and service.show(SERVICE, "SubState") == ["running"])
    assert not is_alive(service, probe) and is_alive(service, pid)
    service.run("rm", str(SPECS / "probing.yaml"))
    end_well(service, "strays\n", runs)


def test_a_run_cannot_speak_to_systemd_in_the_daemons_name(service: Machine) -> None:
    """systemd accepts messages to keep or to forget a process only from the main process."""
    service.write(f"{HOME}/out/forge.py", FORGE)
    service.write(f"{HOME}/out/forging", "")
    pid, runs = begin(service, "forged\n")
    eventually(lambda: service.read(f"{HOME}/out/forged"))
    service.run("rm", f"{HOME}/out/forging")
    refused = "reception only permitted for main PID"
    eventually(
        lambda: sum(refused in str(entry["MESSAGE"]) for entry in service.entries("-u", SERVICE)) >= 3,
        what="systemd refuses three messages",
    )
    [stored, status] = service.show(SERVICE, "NFileDescriptorStore", "StatusText")
    assert stored == "5" and "forged" not in status
    service.run("systemctl", "restart", SERVICE)
    assert is_alive(service, pid)
    end_well(service, "forged\n", runs)


def test_a_stop_ends_the_runs(service: Machine) -> None:
    """No run lives on without a daemon. The run is interrupted, and repeated later."""
    service.write(f"{HOME}/wakeful.yaml", "stop_grace: 0s\n")
    pid, _ = begin(service, "stopped\n")
    service.run("systemctl", "stop", SERVICE, SOCKET)
    assert not is_alive(service, pid)
    assert service.show(SERVICE, "ActiveState", "Result", "NFileDescriptorStore") == ["inactive", "success", "0"]
    service.run("systemctl", "start", SOCKET, SERVICE)
    service.write(f"{HOME}/go", "")
    eventually(lambda: service.read(f"{HOME}/out/done") == "stopped\n")


def test_a_daemon_that_dies_while_it_is_stopped_leaves_nothing_running(service: Machine) -> None:
    """If the daemon does not stop in time, the unit ends the run, because no daemon will."""
    service.drop_in(SERVICE, "[Service]\nTimeoutStopSec=1s\n")
    service.write(f"{HOME}/wakeful.yaml", "stop_grace: 60s\n")
    service.run("systemctl", "reload", SERVICE)
    pid, _ = begin(service, "hung\n")
    service.run("systemctl", "stop", SERVICE, SOCKET)
    eventually(lambda: not is_alive(service, pid))
    assert service.show(SERVICE, "Result") == ["timeout"]
    service.drop_in(SERVICE, "[Service]\nRestartSec=100ms\n")
    service.run("systemctl", "reset-failed", SERVICE)
    service.run("systemctl", "start", SOCKET, SERVICE)
    service.write(f"{HOME}/go", "")
    eventually(lambda: service.read(f"{HOME}/out/done") == "hung\n")


def test_a_persons_run_outlives_a_restart(machine: Machine) -> None:
    """The same holds in a person's own service manager, which needs no bus for it."""
    home = f"{HOME}/own"
    machine.run("loginctl", "enable-linger", ACCOUNT)
    eventually(lambda: machine.ask("systemctl", "is-active", f"user@{UID}.service").stdout.strip() == "active")
    machine.write(f"{home}/in.txt", "1\n")
    machine.write(f"{home}/out/.keep", "")
    machine.write(f"{home}/sessions.d/work.yaml", SPEC)
    machine.run("wakeful", "install", "--specs", f"{home}/sessions.d", is_person=True)
    pid = eventually(lambda: machine.read(f"{home}/out/pid").strip())
    eventually(lambda: machine.show("wakeful.service", "NFileDescriptorStore", is_person=True) == ["5"])
    machine.run("systemctl", "--user", "restart", "wakeful.service", is_person=True)
    assert is_alive(machine, pid)
    machine.write(f"{home}/go", "")
    eventually(lambda: machine.read(f"{home}/out/done") == "1\n")
    kinds = eventually(
        lambda: (
            "run_finished"
            in (
                said := machine.run(
                    "wakeful", "log", "work", "--socket", f"/run/user/{UID}/wakeful.sock", is_person=True
                )
            )
            and said
        )
    )
    assert "run_readopted" in kinds
    machine.run("wakeful", "uninstall", is_person=True)
