"""`wakeful doctor`: checks the machine and the daemon, and names a command that repairs each problem.

It looks at the machine itself, and asks the daemon for facts that only the daemon knows. Each check prints one line.
The exit code is 1 if a check is bad.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import apsw

from wakeful import __version__
from wakeful.cli.client import Client, Options
from wakeful.cli.daemon_location import find_state, say_start
from wakeful.cli.exit_codes import FAILED, Failure
from wakeful.cli.text import count, escape, format_bytes, paint, wrap
from wakeful.cli.verbs.doctor_machine import check_surroundings
from wakeful.cli.verbs.doctor_store import Check, check_store, mend
from wakeful.client.refusals import DaemonAway, DaemonBusy
from wakeful.core.spec.limits import FEW_BYTES, UNWARNED, LimitName, judge_disk_space, say_amount
from wakeful.service.offline_store import REMOTE, find_file_system, find_holder, is_affected

# A non-breaking space: keeps words on one line. It is printed as a space.
TIE = "\u00a0"
INOTIFY = Path("/proc/sys/fs/inotify")


def doctor_verb(options: Options, state: str | None, is_mending: bool) -> None:
    if is_mending:
        mend(options, Path(find_state(state)))
        return
    health, answer = _ask_daemon(options.client(), find_state(state))
    folder = Path(health["state"] if health is not None and state is None else find_state(state))
    around = check_surroundings(health["pid"] if health is not None else None, folder)
    checks = [answer, _check_sqlite(), *_check_watches(health), *around, *_check_folder(folder)]
    # The store is read from its folder, whether its daemon runs, is stopped or cannot start.
    checks += check_store(folder, is_living=find_holder(folder) is not None, is_shown=not options.is_json)
    checks += _check_health(health) if health is not None else []
    if options.is_json:
        print(json.dumps([check.view() for check in checks]))
    else:
        _print(checks)
    if any(check.verdict == "bad" for check in checks):
        raise Failure(code=FAILED)


def _print(checks: list[Check]) -> None:
    marks = {"good": "ok  ", "warn": "look", "bad": "BAD "}
    for check in checks:
        lines = wrap(escape(f"{check.name}: {check.brief or check.words}"), "      ")
        first, *rest = (line.replace(TIE, " ") for line in lines) if check.brief else lines
        print(f"{paint(marks[check.verdict], check.verdict)}  {first.lstrip()}")
        for line in rest:
            print(line)
        if check.mend:
            print(f"      {paint(escape(check.mend), 'bold')}")


def _ask_daemon(client: Client, state: str) -> tuple[dict[str, Any] | None, Check]:
    try:
        health = client.get("/doctor")
    except DaemonAway as error:
        if client.project is not None and find_holder(Path(client.project)) is None:
            return None, Check(
                "daemon",
                "bad",
                f"the daemon of this project is down: none answers for {client.project}",
                say_start(client.project),
            )
        return None, _explain_silence(client.path, Path(state), " ".join(str(error).split()))
    except DaemonBusy as error:
        return None, Check("daemon", "bad", str(error), "ss -xp                # which process holds connections")
    if health["version"] != __version__:
        words = f"version {health['version']}, this command is {__version__}"
        return health, Check("daemon", "warn", words, "systemctl --user restart wakeful")
    words = (
        f"version {health['version']}, pid {health['pid']}, {count(health['sessions'], 'session')}, "
        f"{health['running']} running"
    )
    return health, Check("daemon", "good", words)


def _explain_silence(socket: str, state: Path, words: str) -> Check:
    """Explain why no daemon answers. If a living process holds the state folder, a second daemon would be refused."""
    holder = find_holder(state)
    if holder is None:
        return Check("daemon", "bad", words, "wakeful daemon")
    lives = f"but process {holder} is a daemon that uses {state}"
    if os.path.lexists(socket):
        return Check(
            "daemon",
            "bad",
            f"no daemon answers at {socket}, {lives}: it is stopped, or listens elsewhere",
            f"ps -o stat,args -p {holder}",
        )
    words = (
        f"there is no socket at {socket}, {lives}: the file was removed, and it listens again within seconds; "
        "or it listens elsewhere"
    )
    return Check("daemon", "bad", words, f"wakeful doctor --socket PATH, or: kill {holder}, then wakeful daemon")


def _check_sqlite() -> Check:
    version = apsw.sqlite_lib_version()
    major, minor, patch = (int(part) for part in version.split(".")[:3])
    if is_affected((major, minor, patch)):
        return Check("sqlite", "bad", f"{version} can corrupt its write-ahead log", "pip install --upgrade apsw")
    return Check("sqlite", "good", version)


def _check_watches(health: dict[str, Any] | None) -> Iterator[Check]:
    try:
        most = int((INOTIFY / "max_user_watches").read_text())
    except OSError:
        yield Check("watches", "warn", "this system has no inotify; folders are polled")
        return
    used = count_watches(health["pid"]) if health is not None else 0
    raise_limit = f"sudo sysctl fs.inotify.max_user_watches={max(most * 4, 524288)}"
    if used > most * 0.8:
        yield Check(
            "watches",
            "warn",
            f"{used} of {most} are in use by the daemon alone; beyond that folders are polled",
            raise_limit,
        )
    else:
        yield Check("watches", "good", f"{used} of {most} inotify watches in use by the daemon")


def count_watches(pid: int) -> int:
    """Count the inotify watches of a process, from /proc. A process that ends meanwhile counts as none."""
    count = 0
    folder = f"/proc/{pid}/fdinfo"
    try:
        files = os.listdir(folder)
    except OSError:
        return 0
    for file in files:
        try:
            with open(f"{folder}/{file}", encoding="ascii", errors="replace") as lines:
                count += sum(line.startswith("inotify wd:") for line in lines)
        except OSError:
            continue
    return count


def _check_folder(state: Path) -> Iterator[Check]:
    if not state.is_dir():
        yield Check("state", "warn", f"{state} is not there yet; the daemon makes it", "wakeful daemon")
        return
    found = state.stat()
    if found.st_uid != os.geteuid():
        yield Check("state", "bad", f"{state} belongs to user {found.st_uid}", f"sudo chown -R {os.geteuid()} {state}")
    elif stat.S_IMODE(found.st_mode) & 0o077:
        yield Check(
            "state", "bad", f"{state} can be read by others ({stat.S_IMODE(found.st_mode):04o})", f"chmod 700 {state}"
        )
    else:
        yield Check("state", "good", f"{state}, for its owner alone")
    system = find_file_system(state)
    if system in REMOTE:
        yield Check(
            "disk",
            "bad",
            f"{state} lies on {system}, where a write-ahead log is not safe",
            "wakeful daemon --state LOCAL_FOLDER",
        )
    yield _check_room(state, system)


def _check_room(state: Path, system: str) -> Check:
    found = shutil.disk_usage(state)
    shortage = judge_disk_space(found.free, found.total, is_short=False)
    if shortage is not None:
        return Check("disk", "bad", f"new runs wait for {shortage}", f"df -h {state}")
    # On a small disk, half of it free is enough.
    if found.free < min(FEW_BYTES, found.total // 2):
        return Check("disk", "warn", f"{found.free / 1e9:.2f} GB free on {system}", f"df -h {state}")
    return Check("disk", "good", f"{found.free / 1e9:.1f} GB free on {system}")


def _check_limits(limits: dict[str, Any]) -> Iterator[Check]:
    """Report the published limits, and the sessions above a level. docs/limits.md and --json explain each limit."""
    told = "; ".join(f"{name} ({one['what']}) {one['words']}" for name, one in limits["levels"].items())
    brief = ", ".join(f"{name} {_say_levels(name, one)}".replace(" ", TIE) for name, one in limits["levels"].items())
    yield Check("limits", "good", told, brief=f"(warns/at most) {brief}")
    for one in limits["over"]:
        verdict: Literal["warn", "bad"] = "bad" if one["level"] == "hard" else "warn"
        yield Check("limit", verdict, f"{one['session']}, {one['words']}", one["mend"])
    if (more := limits["over_count"] - len(limits["over"])) > 0:
        yield Check("limit", "warn", f"{count(more, 'more session')} above a warning level")


def _say_levels(name: LimitName, levels: dict[str, Any]) -> str:
    """Format the two levels of a limit, such as `16 KiB/256 KiB`: the warning, then the maximum.

    Without a warning level, it is only the maximum.
    """
    hard = say_amount(name, levels["hard"])
    return hard if name in UNWARNED else f"{say_amount(name, levels['warn'])}/{hard}"


def _check_blobs(blobs: dict[str, Any]) -> Check:
    """Check the blobs: outputs and contents of runs. Files that a crash left half written do no harm."""
    left = (
        f"; {count(blobs['unfinished'], 'file')} half written when a daemon was killed, and not needed"
        if blobs["unfinished"]
        else ""
    )
    return Check(
        "blobs",
        "good",
        f"{blobs['blobs']:,} contents and outputs of runs are kept, {format_bytes(blobs['size_bytes'])}{left}",
    )


def _check_trust(trust: dict[str, Any]) -> Iterator[Check]:
    """Report folders of specs that others can write, and specs that wait for a person's trust."""
    for one in trust["folders"]:
        if one["others"] is not None:
            words, _, mend = one["others"].rstrip(")").rpartition(" (")
            yield Check(
                "trust", "warn", f"{words}: changed specs in {one['folder']} sleep until they are trusted", mend
            )
    if trust["waiting"]:
        names = ", ".join(one["name"] for one in trust["waiting"])
        yield Check("trust", "warn", f"sleeping until a person trusts their specs: {names}", "wakeful trust")


def _check_notifiers(notifiers: Iterable[dict[str, Any]]) -> Iterator[Check]:
    """Report notifiers that do not deliver: disabled, failing for a while, or without success for the last message."""
    for one in notifiers:
        if not one["is_troubled"]:
            continue
        trying = one["trying"]
        words = (
            f"is disabled: {one['disabled']}"
            if one["disabled"]
            else f"failed {count(trying['attempts'], 'time')}, and is tried again: {trying['problem']}"
            if trying
            else f"gave up its last message: {one['ended'][0]['problem']}"
        )
        yield Check("notifier", "warn", f"{one['name']} {words}", f"wakeful notify test {one['name']}")


def _check_isolation(isolation: dict[str, Any]) -> Iterator[Check]:
    """Report the parts of isolation that work here, those that do not, and the sessions that run without isolation."""
    if not isolation["landlock"]:
        words = "this kernel has no Landlock: only sessions with isolation: none run"
        yield Check(
            "isolation", "bad", words, "add landlock to lsm= of the kernel's command line (Linux 5.13 or newer)"
        )
        return
    yield Check(
        "isolation",
        "good",
        f"Landlock ABI {isolation['landlock']}; cannot be enforced: {'; '.join(isolation['unenforced'])}",
    )
    yield from _check_kernel(isolation)
    if not isolation["shielding"]:
        words = (
            "you cannot make user namespaces here: a run can change specs next to its output, and an output next to "
            ".git or the state folder cannot be replaced by renaming"
        )
        yield Check(
            "isolation",
            "warn",
            words,
            "give outputs a folder of their own, such as out/, or allow user namespaces (sysctl "
            "kernel.apparmor_restrict_unprivileged_userns)",
        )
    if isolation["unisolated"]:
        told = (
            "would run" if not isolation["allow_unisolated"] else "run" if len(isolation["unisolated"]) > 1 else "runs"
        )
        yield Check(
            "isolation", "warn", f"{', '.join(isolation['unisolated'])} {told} without any isolation", "wakeful list"
        )


def _check_kernel(isolation: dict[str, Any]) -> Iterator[Check]:
    """List each gap in what this kernel can enforce, and the substitutes that the daemon uses for some of them."""
    for gap in isolation["gaps"]:
        yield Check("kernel", "warn", f"cannot enforce {gap['what']}: {gap['means']}", f"needs {gap['needs']}")
    if not isolation["gaps"]:
        yield Check("kernel", "good", "enforces everything that wakeful needs")
    if not isolation["bounding"]:
        words = (
            "no control group bounds the memory and processes of runs: "
            "`limits` of a run as a whole are checked ten times a second"
        )
        yield Check("limits of runs", "good", f"{words} (under systemd 254: DelegateSubgroup=daemon in a drop-in)")
    if isolation["kept_closed"]:
        paths = ", ".join(isolation["kept_closed"])
        words = (
            f"{paths}: closed to others when first seen, and now readable by everybody; still closed to runs, "
            "because a run may have changed the mode"
        )
        first = shlex.quote(isolation["kept_closed"][0])
        yield Check(
            "settings",
            "warn",
            words,
            f"if it should be readable: cp -p {first} {first}.new && mv {first}.new {first}; else: chmod o= {first}",
        )


def _check_connections(connections: dict[str, Any]) -> Iterator[Check]:
    """Report how many connections of the control socket are in use, and which run was refused more."""
    most, kept, of_one = connections["most"], connections["kept_for_people"], connections["most_of_one_run"]
    words = (
        f"{connections['open']} of {count(most, 'connection')} in use, {kept} of them for people alone; "
        f"a run has at most {of_one}"
    )
    holders = ", ".join(f"{one['holder']} has {one['connections']}" for one in connections["largest"])
    if connections["open"] >= most - kept:
        yield Check("connections", "warn", f"{words}; {holders}: runs are refused", "wakeful top")
        return
    yield Check("connections", "good", f"{words}; {connections['refused']} refused so far")
    for one in connections["largest"]:
        if one["run"] is not None and one["connections"] >= of_one:
            name = one["run"].rpartition("#")[0]
            yield Check(
                "connections",
                "warn",
                f"{one['holder']} has {one['connections']}, the most a run may have; more are refused",
                f"wakeful interrupt {shlex.quote(name)}",
            )


def _check_http(http: dict[str, Any]) -> Iterator[Check]:
    """Report the address of the TCP port, and the number of refused requests."""
    if http["url"] is None:
        yield Check("http", "good", "the TCP port is closed; wakeful dashboard opens it")
        return
    held = http["connections"]
    refused = ", ".join(f"{times} by {kind.replace('_', ' ')}" for kind, times in http["refusals"].items() if times)
    words = f"listening on {http['url']}, {held['open']} of {count(held['most'], 'connection')} in use"
    if held["open"] >= held["most"]:
        mend = f"ss -tnp 'sport = :{http['url'].rpartition(':')[2]}'   # who holds them"
        yield Check("http", "warn", f"{words}: more are refused", mend)
        return
    yield Check("http", "good", f"{words}; refused: {refused or 'nothing'}")


def _check_health(health: dict[str, Any]) -> Iterator[Check]:
    """Report the findings of the daemon's `/health`."""
    if health["read_only"]:
        yield Check("log", "bad", health["read_only"], "wakeful verify")
    for one in health.get("damaged", ()):
        yield Check("session", "bad", f"{one['session']}: {one['words']}", "wakeful restore BACKUP")
    for place, words in sorted(health["problems"].items()):
        yield Check("spec", "bad", f"{place}: {words}", "wakeful check")
    if not health["problems"]:
        yield Check("specs", "good", f"all of {health['specs']} are accepted")
    for words, times in sorted(health.get("defects", {}).items()):
        yield Check(
            "defect",
            "bad",
            f"{words}, {count(times, 'time')}",
            "look at its traceback in the daemon's output, and report it: wakeful doctor --json",
        )
    for one in health["degraded"]:
        yield Check(
            "binding", "warn", f"{one['session']}, {one['binding']}: {one['words']}", f"wakeful show {one['session']}"
        )
    for one in health["guarded"]:
        mend = f"wakeful {'resume' if one['is_stopped'] else 'why'} {one['session']}"
        yield Check("loop guard", "bad" if one["is_stopped"] else "warn", f"{one['session']}: {one['words']}", mend)
    for one in health["unfinished_merges"]:
        words = f"the merge of {one['fork']} into {one['session']} is recorded, but not all of its files are written"
        yield Check("merge", "warn", words, f"wakeful merge {one['session']} {one['fork']}")
    for one in health["workspaces"]:
        words = f"{one['folder']} of {one['session']}, which was terminated, takes {one['bytes'] / 1e6:.1f} MB"
        yield Check("workspace", "warn", words, f"rm -r -- {shlex.quote(one['folder'])}")
    yield from _check_trust(health["trust"])
    yield from _check_notifiers(health.get("notifiers", ()))
    yield from _check_isolation(health["isolation"])
    if health["tokens"]["problem"] is not None:
        yield Check("tokens", "bad", health["tokens"]["problem"], f"ls -l -- {shlex.quote(health['tokens']['path'])}")
    yield from _check_connections(health["connections"])
    yield from _check_http(health["http"])
    yield _check_blobs(health["blobs"])
    yield from _check_limits(health["limits"])
    if not health["degraded"]:
        yield Check("bindings", "good", f"{health['targets']} watched by events")
