"""The shipped units, checked by systemd itself: they parse, are hardened, and agree with the daemon's behaviour.

A unit names the place where people install the command. Each test first points a copy of the unit at this environment's
command, because `systemd-analyze verify` refuses a missing program.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

UNITS = Path(__file__).parent.parent / "systemd"
USER_UNIT = UNITS / "wakeful.service"
SYSTEM_UNIT = UNITS / "wakeful@.service"
USER_SOCKET = UNITS / "wakeful.socket"
SYSTEM_SOCKET = UNITS / "wakeful@.socket"
WAKEFUL = Path(sys.executable).with_name("wakeful")

# An account of every Linux system. The tests check an instance instead of the template, so that User= is not empty.
INSTANCE = "wakeful@daemon.service"
STOP_GRACE_SECONDS = 30
EXPOSURE_BAR_TENTHS = 25
# A person's service manager can set up less, so more is left open. The first bar is systemd's rating, the second the
# rating as an account without capabilities.
USER_EXPOSURE_BAR_TENTHS, USER_ACCOUNT_BAR_TENTHS = 76, 47
NOBODY = 65534

needs_systemd_analyze = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None,
    reason="SYSTEMD UNITS NOT CHECKED: systemd-analyze is not on this machine (Debian and Ubuntu: apt install systemd)",
)

# These keys need CAP_SETPCAP or a mount namespace, and a person's service manager has neither. Under systemd 252 the
# unit then ends with 218/CAPABILITIES (the bounding set, PrivateDevices, ProtectClock, ProtectKernelLogs,
# ProtectKernelModules), or starts unprotected.
PRIVILEGED_KEYS = {
    "CapabilityBoundingSet", "ProtectSystem", "ProtectKernelTunables", "ProtectKernelModules", "ProtectKernelLogs",
    "ProtectClock", "ProtectHostname", "ProtectControlGroups", "ReadWritePaths", "PrivateMounts", "DevicePolicy", "DeviceAllow",
    "ProtectHome", "BindPaths", "PrivateTmp", "ProtectProc", "PrivateDevices", "IPAddressDeny", "IPAddressAllow",
}  # fmt: skip
# A person's own programs make containers of every kind.
MACHINES_ALONE = {"RestrictNamespaces"}
# Every run inherits these keys, and each breaks real programs: JIT compilers, runtimes, or the daemon's check of its
# callers.
BREAKING_KEYS = {"MemoryDenyWriteExecute", "PrivateUsers", "ProcSubset", "PrivateNetwork", "RemoveIPC"}
# Other values would break programs, which need the account's own home, its devices and its network.
HARMLESS_VALUES = {
    "ProtectHome": "tmpfs", "ProtectProc": "invisible", "RestrictNamespaces": "~cgroup", "IPAddressAllow": "any",
}  # fmt: skip
# System calls that people's programs use: bubblewrap, strace, nice and taskset.
NEEDED_CALLS = ("@mount", "@debug", "@resources", "@privileged")


def read_unit(path: Path) -> dict[str, str]:
    """Return the settings of a unit, all sections together. No key occurs in two sections."""
    # A line that ends in a backslash continues in the next.
    lines = (line.strip() for line in path.read_text().replace("\\\n", " ").splitlines())
    return dict(line.split("=", 1) for line in lines if line and line[0] not in "#[")


def seconds_of(span: str) -> int:
    """Return a time span in seconds. The units use two forms of it."""
    amount, unit = re.fullmatch(r"(\d+)(s|min)", span).groups()
    return int(amount) * {"s": 1, "min": 60}[unit]


def render(unit: Path, name: str, folder: Path, program: Path = WAKEFUL) -> Path:
    """Copy `unit` as `name`, with `program` in place of the installed command."""
    rendered = folder / name
    text, count = re.subn(r"(?m)^ExecStart=\S+", lambda _: f"ExecStart={program}", unit.read_text())
    assert count == 1, f"{unit} must have exactly one ExecStart="
    rendered.write_text(text)
    # The service names its socket, and systemd looks for it in the same folder.
    socket = USER_SOCKET if unit == USER_UNIT else SYSTEM_SOCKET
    (folder / name).with_suffix(".socket").write_text(socket.read_text())
    return rendered


def analyze(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["systemd-analyze", *words], capture_output=True, text=True, timeout=60)


@needs_systemd_analyze
def test_the_system_unit_verifies(tmp_path: Path) -> None:
    """systemd accepts every line of the system's unit, without a warning."""
    verdict = analyze("verify", "--man=no", render(SYSTEM_UNIT, INSTANCE, tmp_path))
    assert (verdict.returncode, verdict.stdout, verdict.stderr) == (0, "", "")


@needs_systemd_analyze
def test_the_user_unit_verifies(tmp_path: Path) -> None:
    """A person's service manager accepts every line of the user's unit, without a warning."""
    verdict = analyze("verify", "--user", "--man=no", render(USER_UNIT, "wakeful.service", tmp_path))
    assert (verdict.returncode, verdict.stdout, verdict.stderr) == (0, "", "")


@needs_systemd_analyze
@pytest.mark.parametrize("damage", ["a missing program", "an unknown key"])
def test_verify_would_notice(damage: str, tmp_path: Path) -> None:
    """`systemd-analyze verify` on this machine does refuse a missing program and a misspelt key."""
    program = tmp_path / "absent" if damage == "a missing program" else WAKEFUL
    unit = render(SYSTEM_UNIT, INSTANCE, tmp_path, program)
    if damage == "an unknown key":
        unit.write_text(unit.read_text().replace("RestartSec=", "RestartSecs="))
    verdict = analyze("verify", "--man=no", unit)
    assert verdict.returncode != 0 or "RestartSecs" in verdict.stderr, verdict


@needs_systemd_analyze
def test_the_system_unit_is_hardened(tmp_path: Path) -> None:
    """systemd rates the system's unit 2.5 or better, although people's own programs run inside it."""
    unit = render(SYSTEM_UNIT, INSTANCE, tmp_path)
    verdict = analyze("security", "--offline=yes", "--no-pager", f"--threshold={EXPOSURE_BAR_TENTHS}", unit)
    assert verdict.returncode == 0, verdict.stdout.splitlines()[-1:] + [verdict.stderr]


@needs_systemd_analyze
def test_the_user_unit_is_as_hard_as_a_persons_manager_can_make_it(tmp_path: Path) -> None:
    """systemd rates a person's unit as if root ran it.
    As an account without capabilities, which it is, it meets a second bar."""
    unit = render(USER_UNIT, "wakeful.service", tmp_path)
    verdict = analyze("security", "--offline=yes", "--no-pager", f"--threshold={USER_EXPOSURE_BAR_TENTHS}", unit)
    assert verdict.returncode == 0, verdict.stdout.splitlines()[-1:] + [verdict.stderr]
    unit.write_text(unit.read_text().replace("[Service]\n", "[Service]\nUser=daemon\nCapabilityBoundingSet=\n", 1))
    verdict = analyze("security", "--offline=yes", "--no-pager", f"--threshold={USER_ACCOUNT_BAR_TENTHS}", unit)
    assert verdict.returncode == 0, verdict.stdout.splitlines()[-1:] + [verdict.stderr]


def test_the_sockets_are_their_owners_alone() -> None:
    """The mode is 0600 in a folder of 0700, where the command line looks. A daemon that cannot start is given up."""
    user, system = read_unit(USER_SOCKET), read_unit(SYSTEM_SOCKET)
    assert (user["ListenStream"], system["ListenStream"]) == ("%t/wakeful.sock", "/run/wakeful/%i/wakeful.sock")
    assert system["SocketUser"] == "%i" and "-m 0700 -o %i /run/wakeful/%i" in SYSTEM_SOCKET.read_text()
    for unit in (user, system):
        assert (unit["SocketMode"], unit["DirectoryMode"], unit["RemoveOnStop"]) == ("0600", "0700", "yes")
        assert int(unit["TriggerLimitBurst"]) < 50


def test_a_service_brings_its_socket_and_keeps_it() -> None:
    """Starting or enabling the service brings its socket. Stopping it removes neither the socket nor its folder."""
    for unit, socket in ((read_unit(USER_UNIT), "wakeful.socket"), (read_unit(SYSTEM_UNIT), "wakeful@%i.socket")):
        assert (unit["Requires"], unit["After"], unit["Also"]) == (socket, socket, socket)
    assert read_unit(SYSTEM_UNIT)["RuntimeDirectoryPreserve"] == "yes"


@pytest.mark.parametrize("unit", [USER_UNIT, SYSTEM_UNIT], ids=lambda path: path.name)
def test_hardening_breaks_no_run(unit: Path) -> None:
    """Neither unit sets a key that would break a run's JIT, browser, sandbox or GPU program."""
    found = read_unit(unit)
    assert BREAKING_KEYS.isdisjoint(found)
    assert {key: found.get(key, value) for key, value in HARMLESS_VALUES.items()} == HARMLESS_VALUES
    assert not [group for group in NEEDED_CALLS if group in found["SystemCallFilter"]]
    # Terminals, GPU, KVM and FUSE are character devices. The devices that PrivateDevices hides are bound again.
    assert found.get("DeviceAllow", "char-* rw") == "char-* rw"
    if "PrivateDevices" in found:
        assert {"-/dev/dri", "-/dev/fuse", "-/dev/kvm", "-/dev/nvidiactl"} <= set(found["BindPaths"].split())
    if "ProtectHome" in found:
        assert "BindPaths=-/home/%i\n" in unit.read_text()


def test_the_user_unit_asks_for_no_privilege() -> None:
    """The user's unit sets no key that a person's service manager may not set up."""
    assert (PRIVILEGED_KEYS | MACHINES_ALONE).isdisjoint(read_unit(USER_UNIT))


def test_both_units_keep_the_same_life() -> None:
    """Start, stop, reload, restart and watchdog are the same for a person and for the system."""
    user, system = read_unit(USER_UNIT), read_unit(SYSTEM_UNIT)
    own = {
        "Description",
        "ConditionUser",
        "Requires",
        "After",
        "Also",
        "User",
        "ExecCondition",
        "ExecStart",
        "WorkingDirectory",
        "ExecStopPost",
        "WantedBy",
    }
    folders = {key for key in system if "Directory" in key}
    differing = {key for key in user.keys() | system.keys() if user.get(key) != system.get(key)}
    assert differing - own - folders - PRIVILEGED_KEYS - MACHINES_ALONE == set()


def test_the_life_is_the_one_the_daemon_keeps() -> None:
    """systemd waits for the first look, lets runs finish, restarts for ever with a pause, and survives a run out of
    memory."""
    unit = read_unit(SYSTEM_UNIT)
    assert unit["Type"] == "notify"
    assert seconds_of(unit["WatchdogSec"]) > 0
    assert seconds_of(unit["TimeoutStopSec"]) > STOP_GRACE_SECONDS
    assert (unit["KillMode"], unit["FileDescriptorStoreMax"]) == (
        "process",
        unit["Environment"].removeprefix("FDSTORE="),
    )
    assert (unit["Restart"], unit["StartLimitIntervalSec"]) == ("always", "0")
    assert seconds_of(unit["RestartSec"]) >= 1
    assert unit["OOMPolicy"] == "continue"
    assert unit["ExecReload"] == "/bin/kill -HUP $MAINPID"


def test_the_system_unit_refuses_root() -> None:
    """wakeful@root is refused with a sentence, and any other account is accepted."""
    condition = read_unit(SYSTEM_UNIT)["ExecCondition"]
    script = re.fullmatch(r"/bin/sh -c '(.*)'", condition).group(1).replace("$$", "$")

    def ask(**account: int) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, timeout=60, cwd="/", **account)

    assert read_unit(SYSTEM_UNIT)["User"] == "%i"
    if os.getuid() != 0:
        assert ask().returncode == 0
        return
    refused = ask()
    assert refused.returncode == 1 and "does not run as root" in refused.stderr
    assert ask(user=NOBODY, group=NOBODY).returncode == 0


@pytest.mark.parametrize("unit", [USER_UNIT, SYSTEM_UNIT], ids=lambda path: path.name)
def test_the_command_line_of_the_unit_is_one_the_daemon_knows(unit: Path) -> None:
    """Every flag in ExecStart= is a flag of `wakeful daemon`."""
    _, verb, *words = read_unit(unit)["ExecStart"].split()
    told = subprocess.run([WAKEFUL, verb, "--help"], capture_output=True, text=True, timeout=60)
    assert (verb, told.returncode) == ("daemon", 0), told.stderr
    assert [word for word in words if word.startswith("--") and word not in told.stdout] == []
