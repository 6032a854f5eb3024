"""wakeful.service in a person's own, real service manager, from `wakeful install` to `wakeful uninstall`."""

import json

import pytest

from systemd.systemd_machine import ACCOUNT, TOOLS, TOOLS_SAID, UID, WAKEFUL, Machine
from wait_conditions import eventually

# Run by `make test-long`, because these tests boot a machine and start a daemon.
pytestmark = pytest.mark.long

UNITS = f"/home/{ACCOUNT}/.config/systemd/user"
# A folder name with characters that units must escape.
PROJECT = f"/home/{ACCOUNT}/100% of $HOME"
SPEC = """
objective: Write down what a run finds.
bindings:
  i: {file: in.txt, settle: 10ms}
  o: {file: environment, access: write}
run: {script: "env > environment"}
"""


@pytest.fixture
def person(machine: Machine) -> Machine:
    """Return the machine, with a running service manager of its person."""
    if machine.ask("systemctl", "is-active", f"user@{UID}.service").stdout.strip() != "active":
        machine.run("loginctl", "enable-linger", ACCOUNT)
        eventually(lambda: machine.ask("systemctl", "is-active", f"user@{UID}.service").stdout.strip() == "active")
        machine.write(f"{PROJECT}/in.txt", "1\n")
        machine.write(f"{PROJECT}/sessions.d/look.yaml", SPEC)
    return machine


@pytest.fixture
def service(person: Machine) -> Machine:
    if person.ask("systemctl", "--user", "is-active", "wakeful.service", is_person=True).stdout.strip() != "active":
        person.run("wakeful", "install", "--specs", f"{PROJECT}/sessions.d", is_person=True)
    return person


def test_without_a_service_manager_install_says_how_to_get_one(machine: Machine) -> None:
    """This is the situation after su or sudo. Nothing is written, and the message names the command that helps."""
    machine.run("loginctl", "disable-linger", ACCOUNT)
    eventually(lambda: machine.ask("systemctl", "is-active", f"user@{UID}.service").stdout.strip() != "active")
    refused = machine.ask("wakeful", "install", is_person=True)
    assert refused.returncode == 1 and f"sudo loginctl enable-linger {ACCOUNT}" in refused.stderr
    assert machine.ask("test", "-e", UNITS).returncode == 1


def test_a_dry_run_says_everything_and_does_nothing(person: Machine) -> None:
    """A line for each file, reload and start says what would have been done."""
    said = person.run("wakeful", "install", "--dry-run", "--specs", f"{PROJECT}/sessions.d", is_person=True)
    assert (
        f"would have written {UNITS}/wakeful.service" in said
        and "would have enabled and started wakeful.socket and wakeful.service" in said
    )
    if person.show("wakeful.service", "ActiveState", is_person=True) != ["active"]:
        assert person.ask("test", "-e", UNITS).returncode == 1


def test_the_unit_becomes_ready_for_its_person(service: Machine) -> None:
    """The unit is active after the first look, and commands find the daemon without options.

    The unit's status says what the daemon watches.
    """
    assert service.show("wakeful.service", "ActiveState", "SubState", is_person=True) == ["active", "running"]
    assert service.show("wakeful.service", "StatusText", is_person=True)[0].startswith("1 session, ")
    assert "look" in service.run("wakeful", "list", is_person=True)
    assert service.run("stat", "-c", "%U %a", f"/run/user/{UID}/wakeful.sock", f"/run/user/{UID}").split() == [
        ACCOUNT,
        "600",
        ACCOUNT,
        "700",
    ]


def test_nothing_of_systemd_reaches_a_run(service: Machine) -> None:
    """A run has neither systemd's sockets and variables, nor the person's bus or runtime folder."""
    eventually(lambda: "WAKEFUL_RUN" in service.read(f"{PROJECT}/environment"))
    names = {line.partition("=")[0] for line in service.read(f"{PROJECT}/environment").splitlines()}
    prefixes = (
        "NOTIFY",
        "WATCHDOG",
        "LISTEN",
        "CREDENTIALS",
        "JOURNAL",
        "INVOCATION",
        "MEMORY_PRESSURE",
        "DBUS",
        "XDG_RUNTIME",
        "MANAGERPID",
    )
    assert {name for name in names if name.startswith(prefixes)} == set()


def test_a_command_given_during_a_restart_waits_and_succeeds(service: Machine) -> None:
    """The command itself starts the stopped service through its socket."""
    service.run("systemctl", "--user", "stop", "wakeful.service", is_person=True)
    assert "look" in service.run("wakeful", "list", is_person=True)


def test_the_hardening_of_the_unit_holds(service: Machine) -> None:
    """The unit has all the hardening that a person's service manager can set up.

    This means no new privileges, a filter of system calls, and no capabilities.
    """
    pid = service.show("wakeful.service", "MainPID", is_person=True)[0]
    status = dict(line.split(":\t", 1) for line in service.read(f"/proc/{pid}/status").splitlines() if ":\t" in line)
    assert (status["NoNewPrivs"], status["Seccomp"], int(status["CapEff"], 16), int(status["CapPrm"], 16)) == (
        "1",
        "2",
        0,
        0,
    )
    assert status["Uid"].split() == [str(UID)] * 4


def test_people_s_tools_work_inside(service: Machine) -> None:
    """In the unit, with all its restrictions, programs have what they need."""
    home, drop_in = f"/home/{ACCOUNT}", f"{UNITS}/wakeful.service.d/test.conf"
    service.write(f"{home}/tools", TOOLS)
    service.write(drop_in, f"[Service]\nExecStartPre=/bin/sh -c 'sh {home}/tools > {home}/tools.out 2>&1'\n")
    service.run("systemctl", "--user", "daemon-reload", is_person=True)
    service.run("systemctl", "--user", "restart", "wakeful.service", is_person=True)
    service.run("rm", "-r", f"{UNITS}/wakeful.service.d")
    service.run("systemctl", "--user", "daemon-reload", is_person=True)
    assert service.read(f"{home}/tools.out").splitlines() == TOOLS_SAID


def test_doctor_knows_the_service(service: Machine) -> None:
    """systemd runs the daemon, watches it, listens for it, and keeps it after logout.

    Without lingering, `doctor` names the command that repairs it.
    """
    checks = {
        check["name"]: check for check in json.loads(service.ask("wakeful", "doctor", "--json", is_person=True).stdout)
    }
    assert checks["daemon"]["verdict"] == checks["service"]["verdict"] == checks["linger"]["verdict"] == "good", checks
    assert "after 60 s without a sign of life" in checks["service"]["words"]
    service.run("mv", f"/var/lib/systemd/linger/{ACCOUNT}", "/tmp/")
    try:
        checks = {
            check["name"]: check
            for check in json.loads(service.ask("wakeful", "doctor", "--json", is_person=True).stdout)
        }
        assert (checks["linger"]["verdict"], checks["linger"]["mend"]) == ("warn", "loginctl enable-linger")
    finally:
        service.run("mv", f"/tmp/{ACCOUNT}", "/var/lib/systemd/linger/")


@pytest.mark.long
def test_installing_again_changes_nothing_and_a_change_restarts(service: Machine) -> None:
    """An unchanged unit file leaves the daemon alone. A changed one is written and restarts it."""
    before = service.show("wakeful.service", "MainPID", is_person=True)
    said = service.run("wakeful", "install", "--specs", f"{PROJECT}/sessions.d", is_person=True)
    assert said.count("is up to date") == 2 and service.show("wakeful.service", "MainPID", is_person=True) == before
    said = service.run(
        "wakeful", "install", "--specs", f"{PROJECT}/sessions.d", "--state", f"{PROJECT}/state", is_person=True
    )
    assert f"replaced {UNITS}/wakeful.service" in said
    assert service.show("wakeful.service", "MainPID", is_person=True) != before
    assert service.ask("test", "-d", f"{PROJECT}/state/log").returncode == 0


def test_uninstall_undoes_what_install_did_and_no_more(service: Machine) -> None:
    """Unit files and their links are gone. Specs and state stay, and so does a unit that wakeful did not write."""
    said = service.run("wakeful", "uninstall", is_person=True)
    assert (
        "stopped and disabled wakeful.service and wakeful.socket" in said and "specs and state were not touched" in said
    )
    assert service.run("sh", "-c", f"find {UNITS} -name 'wakeful*'").strip() == ""
    assert service.show("wakeful.service", "LoadState", is_person=True) == ["not-found"]
    assert service.ask("test", "-e", f"{PROJECT}/sessions.d/look.yaml").returncode == 0
    service.write(f"{UNITS}/wakeful.service", "[Service]\nExecStart=/bin/true\n")
    refused = service.ask("wakeful", "install", is_person=True)
    assert refused.returncode == 1 and "did not write it" in refused.stderr
    assert "nothing to undo" in service.run(WAKEFUL, "uninstall", is_person=True)
    assert "ExecStart=/bin/true" in service.read(f"{UNITS}/wakeful.service")
    service.run("rm", f"{UNITS}/wakeful.service")
