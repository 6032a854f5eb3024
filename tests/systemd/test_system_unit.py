"""wakeful@ACCOUNT.service under a real systemd, from its first start until it is uninstalled.

The tests share one machine. Their order does not matter: `service` brings the unit up if it is down.
"""

import json
import shutil
import subprocess

import pytest

from systemd.systemd_machine import ACCOUNT, SPECS, TOOLS, TOOLS_SAID, UID, WAKEFUL, Machine
from wait_conditions import eventually

# Run by `make test-long`, because these tests boot a machine and start a daemon.
pytestmark = pytest.mark.long

SERVICE, SOCKET = f"wakeful@{ACCOUNT}.service", f"wakeful@{ACCOUNT}.socket"
PLACE = f"/run/wakeful/{ACCOUNT}/wakeful.sock"
HOME = f"/home/{ACCOUNT}"
STATE = f"/var/lib/wakeful/{ACCOUNT}"
SPEC = """
objective: Write down what a run finds.
bindings:
  i: {file: in.txt, settle: 10ms}
  o: {file: out/environment, access: write}
run:
  script: |
    # A run enters its control group a moment after it started.
    tries=0
    until grep -q /wakeful- /proc/self/cgroup || [ $tries -ge 100 ]; do sleep 0.05; tries=$((tries+1)); done
    cat /proc/self/cgroup > out/group
    ls -l /proc/self/fd > out/descriptors
    env > out/environment
"""

STRICT = """
objective: Say what a strict run sees.
isolation: strict
bindings:
  i: {file: in.txt}
  o: {file: out/strict.txt, access: write}
run:
  script: |
    wc -l < in.txt > out/strict.txt
    # Not by its name: a file that its author named could be read.
    set -- pri*
    test -e "$1" || echo no home >> out/strict.txt
    test "$(ls -d /proc/[0-9]* | wc -l)" -gt 6 || echo alone >> out/strict.txt
"""

# These tests start the daemon several times. `make test-systemd` runs them with the others.
long = pytest.mark.long


@pytest.fixture
def service(machine: Machine) -> Machine:
    """Start the unit as `wakeful install` leaves it, unless it is active."""
    if machine.ask("systemctl", "is-active", SERVICE).stdout.strip() != "active":
        machine.write(f"{HOME}/in.txt", "1\n")
        machine.write(f"{HOME}/out/.keep", "")
        machine.write(SPECS / "look.yaml", SPEC)
        machine.run("wakeful", "install", "--system", "--account", ACCOUNT, "--specs", str(SPECS))
    return machine


def ask(machine: Machine, *words: str) -> str:
    return machine.run("wakeful", *words, is_person=True)


def main_pid(machine: Machine) -> str:
    return machine.show(SERVICE, "MainPID")[0]


def test_the_unit_becomes_ready_and_says_what_it_watches(service: Machine) -> None:
    """systemd calls it active after the first look, runs it as the account, and shows the daemon's own status text."""
    assert service.show(SERVICE, "ActiveState", "SubState", "NotifyAccess", "User") == [
        "active",
        "running",
        "main",
        ACCOUNT,
    ]
    assert service.show(SERVICE, "StatusText")[0].startswith("1 session, ")
    assert service.read(f"/proc/{main_pid(service)}/status").count(f"Uid:\t{UID}") == 1


def test_the_socket_is_the_accounts_alone(service: Machine) -> None:
    """Its mode is 0600, and its folder's is 0700. Both belong to the account, so the kernel refuses other users."""
    assert service.run("stat", "-c", "%U %a", PLACE, f"/run/wakeful/{ACCOUNT}").split() == [
        ACCOUNT,
        "600",
        ACCOUNT,
        "700",
    ]
    stranger = service.ask("setpriv", "--reuid=1", "--regid=1", "--clear-groups", WAKEFUL, "list", "--socket", PLACE)
    assert stranger.returncode != 0


def test_commands_of_the_account_find_the_daemon(service: Machine) -> None:
    """Without --socket, commands also look for the system daemon of their own account."""
    assert "look" in ask(service, "list")


def test_nothing_of_systemd_reaches_a_run(service: Machine) -> None:
    """A run has neither systemd's sockets and variables nor the daemon's descriptors."""
    eventually(lambda: "WAKEFUL_RUN" in service.read(f"{HOME}/out/environment"))
    daemon = service.read(f"/proc/{main_pid(service)}/environ")
    assert (
        "NOTIFY_SOCKET=" in daemon
        and "WATCHDOG_USEC=" in daemon
        and "JOURNAL_STREAM=" in daemon
        and "LISTEN_FDS=1" in daemon
    )
    names = {line.partition("=")[0] for line in service.read(f"{HOME}/out/environment").splitlines()}
    leaked = {
        name
        for name in names
        if name.startswith(("NOTIFY", "WATCHDOG", "LISTEN", "CREDENTIALS", "JOURNAL", "INVOCATION", "MEMORY_PRESSURE"))
    }
    assert leaked == set()
    assert "socket:" not in service.read(f"{HOME}/out/descriptors")


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
def test_a_strict_run_has_its_view_inside_the_unit(service: Machine) -> None:
    """bubblewrap makes its namespaces inside the unit's sandbox, as an unprivileged account.

    The output lands, and the run does not see the home.
    """
    service.write(f"{HOME}/private.txt", "private")
    service.write(SPECS / "strict.yaml", STRICT)
    eventually(lambda: service.read(f"{HOME}/out/strict.txt"))
    assert service.read(f"{HOME}/out/strict.txt").split() == ["1", "no", "home", "alone"]
    eventually(lambda: json.loads(ask(service, "show", "strict", "--json"))["last_run"]["outcome"] == "succeeded")
    finished = [
        json.loads(line) for line in ask(service, "log", "strict", "--json").splitlines() if '"run_finished"' in line
    ][-1]["payload"]
    assert finished["isolation"]["level"] == "strict" and finished["assumed"] is False
    service.run("rm", str(SPECS / "strict.yaml"))
    eventually(lambda: json.loads(ask(service, "show", "strict", "--json"))["state"] == "sleeping")
    ask(service, "terminate", "strict")


def test_a_reload_reads_the_specs_again(service: Machine) -> None:
    """`systemctl reload` succeeds, and the same daemon is ready again."""
    before = main_pid(service)
    service.run("systemctl", "reload", SERVICE)
    eventually(lambda: service.show(SERVICE, "ActiveState", "SubState") == ["active", "running"])
    assert main_pid(service) == before


@long
def test_commands_given_during_restarts_wait_and_succeed(service: Machine) -> None:
    """Commands follow one another while the daemon restarts twice. Each of them succeeds."""
    script = (
        'i=0; while [ ! -e /tmp/enough ]; do "$0" list --json > /dev/null || echo failed; i=$((i+1)); done; echo $i'
    )
    asking = subprocess.Popen(
        service.enter("sh", "-c", script, WAKEFUL, is_person=True),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    seen = {main_pid(service)}
    for _ in range(2):
        service.run("systemctl", "restart", SERVICE)
        seen.add(main_pid(service))
    service.run("touch", "/tmp/enough")
    said = asking.communicate(timeout=60)[0].splitlines()
    assert len(seen) == 3
    assert "failed" not in said and int(said[-1]) >= 2, said


def test_a_command_starts_a_daemon_that_is_down(service: Machine) -> None:
    """The socket stays when the service stops. A command starts the daemon and gets its answer."""
    service.run("systemctl", "stop", SERVICE)
    assert service.show(SERVICE, "ActiveState", "Result") == ["inactive", "success"]
    assert service.show(SOCKET, "ActiveState") == ["active"]
    assert "look" in ask(service, "list")
    eventually(lambda: service.show(SERVICE, "SubState") == ["running"])


@long
def test_a_daemon_that_hangs_is_killed_and_comes_back(service: Machine) -> None:
    """The watchdog ends a stopped daemon. The next one has every record and does the owed run."""
    service.drop_in(SERVICE, "[Service]\nWatchdogSec=2s\nRestartSec=100ms\n")
    service.run("systemctl", "restart", SERVICE)
    hung, restarts = main_pid(service), int(service.show(SERVICE, "NRestarts")[0])
    records = len(ask(service, "log", "look", "--json").splitlines())
    service.run("kill", "-STOP", hung)
    service.write(f"{HOME}/in.txt", "changed while it hung\n")
    eventually(lambda: main_pid(service) not in (hung, "0") and service.show(SERVICE, "SubState") == ["running"])
    assert int(service.show(SERVICE, "NRestarts")[0]) == restarts + 1
    assert any("Watchdog timeout" in str(entry["MESSAGE"]) for entry in service.entries("-u", SERVICE))
    eventually(lambda: len(ask(service, "log", "look", "--json").splitlines()) > records)
    service.run("rm", "-r", f"/etc/systemd/system/{SERVICE}.d/test.conf")
    service.run("systemctl", "daemon-reload")


def test_the_journal_can_be_asked_by_session_and_run(service: Machine) -> None:
    """The journal has the daemon's messages with fields and a priority, under the daemon's unit."""
    eventually(lambda: service.entries("-u", SERVICE, "WAKEFUL_SESSION=look", "WAKEFUL_EVENT=run_finished"))
    entry = service.entries("-u", SERVICE, "WAKEFUL_SESSION=look", "WAKEFUL_EVENT=run_finished")[0]
    assert entry["MESSAGE"].startswith("look: run 1 succeeded") and entry["PRIORITY"] == "6"
    assert (entry["WAKEFUL_RUN"], entry["SYSLOG_IDENTIFIER"], entry["_TRANSPORT"]) == ("1", "wakeful", "journal")
    assert [one for one in service.entries("-u", SERVICE) if str(one["MESSAGE"]).startswith("ready: 1 session")]


def test_each_run_has_a_control_group_of_its_own(service: Machine) -> None:
    """Delegation works, although the view of the other groups is read-only.

    So all processes of a run can be ended together.
    """
    eventually(lambda: f"{SERVICE}/wakeful-" in service.read(f"{HOME}/out/group"))


def test_people_s_tools_work_inside(service: Machine) -> None:
    """In the unit, with all its restrictions, programs have what they need, except namespaces of control groups."""
    service.write(
        f"{HOME}/tools",
        TOOLS.replace("--unshare-all", "--unshare-user --unshare-ipc --unshare-pid --unshare-net --unshare-uts"),
    )
    service.drop_in(SERVICE, f"[Service]\nExecStartPre=/bin/sh -c 'sh {HOME}/tools > {HOME}/tools.out 2>&1'\n")
    service.run("systemctl", "restart", SERVICE)
    service.run("rm", f"/etc/systemd/system/{SERVICE}.d/test.conf")
    service.run("systemctl", "daemon-reload")
    assert service.read(f"{HOME}/tools.out").splitlines() == TOOLS_SAID


def test_the_system_is_closed(service: Machine) -> None:
    """The daemon has no privileges and no capabilities.

    In its view of the machine, not even root can write, except in places for work.
    """
    pid = main_pid(service)
    status = dict(line.split(":\t", 1) for line in service.read(f"/proc/{pid}/status").splitlines() if ":\t" in line)
    assert (status["NoNewPrivs"], status["Seccomp"], int(status["CapBnd"], 16)) == ("1", "2", 0)
    for place, is_open in (
        (HOME, True),
        ("/var/tmp", True),
        ("/srv", True),
        ("/usr", False),
        ("/etc", False),
        ("/", False),
        ("/sys/fs/cgroup", False),
    ):
        tried = service.ask("nsenter", "-t", pid, "-m", "sh", "-c", f"mkdir {place}/made && rmdir {place}/made")
        assert (tried.returncode == 0) == is_open, (place, tried.stderr)
    assert "Read-only" in service.ask("nsenter", "-t", pid, "-m", "sh", "-c", "echo 1 > /proc/sys/kernel/panic").stderr
    # The view has no home, process or /tmp file of other people. It has only the devices that programs need.
    service.run("sh", "-c", "mkdir -p /home/somebody && touch /tmp/of-somebody")
    assert service.run("nsenter", "-t", pid, "-m", "ls", "/home").split() == [ACCOUNT]
    assert "of-somebody" not in service.run("nsenter", "-t", pid, "-m", "ls", "/tmp").split()
    seen = service.run(
        "nsenter", "-t", pid, "-m", "setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups", "ls", "/proc"
    ).split()
    assert pid in seen and "1" not in seen and "meminfo" in seen
    assert {"null", "zero", "urandom", "ptmx", "pts", "shm"} <= set(
        service.run("nsenter", "-t", pid, "-m", "ls", "/dev").split()
    )


def test_doctor_knows_the_service(service: Machine) -> None:
    """The account is told that systemd runs, watches and listens for the daemon.

    Nothing is said about logouts, because the daemon does not depend on a login.
    """
    checks = {
        check["name"]: check for check in json.loads(service.ask("wakeful", "doctor", "--json", is_person=True).stdout)
    }
    assert (
        checks["daemon"]["verdict"] == checks["service"]["verdict"] == "good"
        and "run by systemd" in checks["service"]["words"]
    )
    assert "linger" not in checks


def test_root_gets_no_daemon(machine: Machine) -> None:
    """The unit itself refuses root, and `install` refuses it before."""
    refused = machine.ask("wakeful", "install", "--system", "--account", "root")
    assert refused.returncode == 1 and "never runs as root" in refused.stderr


def test_the_unit_stops_within_its_grace(service: Machine) -> None:
    """Stopping sends SIGTERM only to the daemon, which ends in good order. The socket file is gone."""
    service.run("systemctl", "stop", SOCKET, SERVICE)
    assert service.show(SERVICE, "ActiveState", "Result", "ExecMainStatus") == ["inactive", "success", "0"]
    assert service.ask("test", "-e", PLACE).returncode == 1


def test_uninstall_undoes_what_install_did_and_no_more(service: Machine) -> None:
    """The units are gone from systemd and disk. State, specs and the operator's own drop-in stay."""
    before = service.run("sh", "-c", f"find {STATE} {SPECS} | sort")
    assert before
    again = service.run("wakeful", "install", "--system", "--account", ACCOUNT, "--specs", str(SPECS))
    assert again.count("is up to date") == 3
    said = service.run("wakeful", "uninstall", "--system", "--account", ACCOUNT)
    assert f"stopped and disabled {SERVICE} and {SOCKET}" in said
    assert (
        service.run("sh", "-c", "find /etc/systemd/system -name 'wakeful*' ! -name '*.d' -o -name wakeful.conf").strip()
        == ""
    )
    assert service.show(SERVICE, "LoadState") == ["not-found"]
    assert set(service.run("sh", "-c", f"find {STATE} {SPECS} | sort").split()) >= {
        line for line in before.split() if "cache" not in line and "db-" not in line
    }
    assert "nothing to undo" in service.run("wakeful", "uninstall", "--system", "--account", ACCOUNT)
