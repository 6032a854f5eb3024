"""`verify`, `backup` and `restore`: the verbs for the log as a whole, with or without a daemon.

While a daemon runs they read its store through a connection that cannot write. Only `restore` writes, and it takes the
daemon's lock first.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from wakeful.cli.client import Options
from wakeful.cli.daemon_location import find_state
from wakeful.cli.exit_codes import FAILED, Failure
from wakeful.cli.progress import Bar
from wakeful.cli.text import count, escape, paint
from wakeful.client.refusals import DaemonAway
from wakeful.eventlog.contract import Report
from wakeful.monitoring.last_verification import Verified, write_verified
from wakeful.service.offline_store import find_session, open_reader, restore


def locate_state(options: Options, state: str | None) -> Path:
    """Choose the state folder: the named one, else that of the daemon that answers, else the default folder."""
    if state is None:
        try:
            return Path(options.client().get("/version")["state"])
        except DaemonAway:
            # The log of a stopped daemon can be verified too.
            pass
    return Path(find_state(state))


def name_folder(options: Options, doing: str, folder: Path) -> None:
    """Print the folder before anything is done, so that a person who meant another folder notices."""
    if not options.is_json:
        print(f"{doing} the log in {escape(str(folder))}", flush=True)


def verify_verb(options: Options, name: str | None, state: str | None) -> None:
    folder = locate_state(options, state)
    name_folder(options, "verifying", folder)
    log = open_reader(folder)
    try:
        # Look the name up in the folder's own records, because the daemon that answers may use another folder.
        session = find_session(log, name).id if name is not None else None
        with Bar(is_shown=not options.is_json) as progress:
            report = log.verify(session, progress)
    finally:
        log.close()
    if session is None:
        _note_verified(folder, report)
    _print_report(options, folder, report)
    if not report.is_sound:
        raise Failure(code=FAILED)


def _note_verified(folder: Path, report: Report) -> None:
    """Save the time and the result for `wakeful health`.

    Only warns if the folder cannot be written.
    """
    verified = Verified(at=time.time_ns() // 1000, records=report.records, findings=len(report.findings))
    try:
        write_verified(folder, verified)
    except OSError as error:
        print(f"wakeful health will not know of this: {folder} cannot be written: {error.strerror}", file=sys.stderr)


def _print_report(options: Options, folder: Path, report: Report) -> None:
    if options.is_json:
        findings = [{"where": one.where, "what": one.what} for one in report.findings]
        counts = {
            "sessions": report.sessions,
            "records": report.records,
            "erased": report.erased,
            "snapshots": report.snapshots,
        }
        print(json.dumps({"state": str(folder), "sound": report.is_sound, **counts, "findings": findings}))
        return
    for finding in report.findings:
        print(paint(escape(f"{finding.where}: {finding.what}"), "bad"))
    print(f"{_count(report)}: {'all sound' if report.is_sound else count(len(report.findings), 'finding')}")


def _count(report: Report) -> str:
    return f"{count(report.records, 'record')} of {count(report.sessions, 'session')}"


def backup_verb(options: Options, file: str, state: str | None) -> None:
    folder = locate_state(options, state)
    name_folder(options, "backing up", folder)
    log = open_reader(folder)
    try:
        with Bar(is_shown=not options.is_json) as progress:
            report = log.backup(Path(file).absolute(), progress)
    finally:
        log.close()
    if options.is_json:
        print(
            json.dumps(
                {
                    "file": str(Path(file).absolute()),
                    "state": str(folder),
                    "sessions": report.sessions,
                    "records": report.records,
                }
            )
        )
        return
    print(f"{escape(str(file))}: {_count(report)}, verified")


def restore_verb(options: Options, file: str, state: str | None, even_if_newer: bool) -> None:
    # Do not ask a daemon for its folder: it must be stopped, and the result must not depend on another daemon.
    folder = Path(find_state(state))
    name_folder(options, "restoring", folder)
    with Bar(is_shown=not options.is_json) as progress:
        aside = restore(Path(file).absolute(), folder, even_if_newer=even_if_newer, progress=progress)
    if options.is_json:
        print(json.dumps({"state": str(folder), "aside": str(aside) if aside is not None else None}))
        return
    kept = f"; the log that was there is kept in {escape(str(aside))}" if aside is not None else ""
    print(f"restored{kept}")
