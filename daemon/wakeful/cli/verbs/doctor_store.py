"""The part of `doctor` that checks and repairs a state folder, with or without its daemon.

Each finding names the command that repairs it. `doctor --mend` repairs data that can be computed from the records. The
records themselves can only be restored from a backup.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import apsw

from wakeful.cli.client import Options
from wakeful.cli.exit_codes import FAILED, Failure
from wakeful.cli.progress import Bar
from wakeful.cli.text import count, escape, format_bytes, paint
from wakeful.errors import WakefulError
from wakeful.eventlog.contract import Finding, Import, Report, StoreUnfinished, StoreUnsafe
from wakeful.service.offline_store import WAL_KEPT_BYTES, Examined, examine, find_holder, judge_state, mend_store

MOST_LINES = 20


class Check(NamedTuple):
    """One line of `doctor`. `mend` is a command, or an instruction in words; it is empty when nothing has to be done.

    `brief` replaces long `words` on the screen.
    """

    name: str
    verdict: Literal["good", "warn", "bad"]
    words: str
    mend: str = ""
    brief: str = ""

    def view(self) -> dict[str, str]:
        """Return the check as --json prints it, with the full words."""
        return {"name": self.name, "verdict": self.verdict, "words": self.words, "mend": self.mend}


def check_store(state: Path, *, is_living: bool, is_shown: bool) -> Iterator[Check]:
    """Check everything in a state folder.

    `is_living` means that its daemon runs, and must be stopped before a repair.
    """
    if not is_living:
        try:
            wrong = judge_state(state)
        except StoreUnsafe as error:
            # The location of the folder is unsafe, not the log. A restore would not help.
            yield Check("log", "bad", str(error))
            return
        if wrong is not None:
            yield Check("log", "bad", f"the daemon will not write to it: {wrong}", restore_words(state))
            return
    if not (state / "log" / "events.db").exists():
        yield Check("log", "good", "there is none yet")
        return
    try:
        with Bar(is_shown=is_shown) as progress:
            found = examine(state, progress)
    except StoreUnfinished as error:
        yield Check("log", "warn", str(error), "wakeful daemon")
        return
    except (WakefulError, apsw.Error) as error:
        yield Check("log", "bad", f"it cannot be read to its end: {error}", restore_words(state))
        return
    yield from _check_log(found, state, mend_words(state, is_living=is_living))
    yield from _check_surroundings(found, state, mend_words(state, is_living=is_living))


def restore_words(state: Path) -> str:
    return f"wakeful restore BACKUP --state {state}"


def mend_words(state: Path, *, is_living: bool) -> str:
    return f"{'stop the daemon, then: ' if is_living else ''}wakeful doctor --mend --state {state}"


def _check_log(found: Examined, state: Path, mend: str) -> Iterator[Check]:
    if found.report is None:
        yield Check(
            "log",
            "good",
            f"holds every acknowledged record ({count(found.records, 'record')}); wakeful verify recomputes every hash",
        )
    elif found.report.is_sound:
        yield Check(
            "log",
            "good",
            f"holds every acknowledged record; {count(found.report.records, 'record')}, every hash recomputed",
        )
    else:
        yield from check_findings(found.report, state, mend)


def check_findings(report: Report, state: Path, mend: str) -> Iterator[Check]:
    """Make a line for each finding.

    While an index is damaged, records may only seem to be lost. So the repair of the index comes first.
    """
    is_index_wrong = any(
        finding.is_derived and finding.where.startswith(("index", "store")) for finding in report.findings
    )
    for finding in report.findings[:MOST_LINES]:
        yield _check_finding(finding, state, mend, is_index_wrong=is_index_wrong)
    if (more := len(report.findings) - MOST_LINES) > 0:
        yield Check("log", "bad", f"{count(more, 'more finding')}", "wakeful verify")


def _check_finding(finding: Finding, state: Path, mend: str, *, is_index_wrong: bool) -> Check:
    words = f"{finding.where}: {finding.what}"
    if finding.is_derived:
        return Check("log", "bad", f"{words}; it is computed from the records and can be rebuilt", mend)
    if is_index_wrong and finding.where != "anchor":
        return Check("log", "bad", f"{words}; perhaps only because an index is damaged", mend)
    return Check("log", "bad", f"{words}; this is lost here, only a backup has it", restore_words(state))


def _check_surroundings(found: Examined, state: Path, mend: str) -> Iterator[Check]:
    if found.search_wrong is not None:
        yield Check("search", "warn", f"its index is damaged: {found.search_wrong}; the next search rebuilds it", mend)
    yield from map(_check_import, found.imports)
    for broken in found.archives:
        words = f"session {broken.session} is archived in {broken.bundle}, which is damaged: {broken.wrong}"
        yield Check(
            "archive",
            "bad",
            f"{words}; its payloads cannot be loaded back",
            f"put the file back from a backup of {state / 'archive'}",
        )
    for wrong in found.outputs_wrong:
        yield Check(
            "archive",
            "bad",
            f"the outputs of old runs: {wrong}",
            f"put the file back from a backup of {state / 'archive' / 'outputs'}",
        )
    yield from _check_blobs(found, state)
    if found.wal_bytes > WAL_KEPT_BYTES:
        words = (
            f"its write-ahead log has {format_bytes(found.wal_bytes)}: a process keeps a read of the log open, so "
            "its records cannot move into the main file"
        )
        yield Check(
            "log",
            "warn",
            words,
            f"fuser -v {state / 'log' / 'events.db-wal'}        # end the process that is not the daemon",
        )
    for lost in found.blobs:
        words = (
            f"session {lost.session}: {lost.missing} of {count(lost.named, 'blob')} are gone, with contents and "
            "outputs of its runs"
        )
        yield Check(
            "blobs", "warn", words, f"put them back from a backup of {state / 'blobs'}; nothing else needs them"
        )


def _check_blobs(found: Examined, state: Path) -> Iterator[Check]:
    damaged = found.damaged_blobs.addresses
    for address in damaged[:MOST_LINES]:
        words = f"{address}: its content does not match its name; a content or output of a run is lost here"
        yield Check(
            "blobs", "bad", words, f"put the file back from a backup of {state / 'blobs'}; nothing else needs it"
        )
    if (more := len(damaged) - MOST_LINES) > 0:
        yield Check("blobs", "bad", f"{count(more, 'more blob')} whose content does not match the name")
    if found.damaged_blobs.unread_bytes:
        yield Check(
            "blobs",
            "good",
            f"{format_bytes(found.damaged_blobs.unread_bytes)} were not read, the largest blobs: "
            "reading all of them takes too long",
        )


def _check_import(one: Import) -> Check:
    words = (
        f"session {one.session} was loaded to record {one.seq} of {one.last_seq}, and the load was cut short; the "
        "new records do not count until it is complete"
    )
    return Check(
        "load",
        "warn",
        words,
        "give the same command again: wakeful load FILE here, or wakeful migrate on the host it comes from",
    )


def mend(options: Options, state: Path) -> None:
    """Carry out `doctor --mend`: print what was done, where the copy is, and what cannot be repaired.

    Exit 1 if something cannot be repaired.
    """
    holder = find_holder(state)
    if holder is not None:
        raise Failure(f"process {holder} is a daemon that uses {escape(str(state))}; stop it first")
    if not options.is_json:
        print(f"mending the log in {escape(str(state))}", flush=True)
    with Bar(is_shown=not options.is_json) as progress:
        mended = mend_store(state, progress)
    left = list(check_findings(mended.report, state, mend_words(state, is_living=False)))
    if options.is_json:
        copy = str(mended.copy) if mended.copy is not None else None
        print(
            json.dumps(
                {"state": str(state), "done": list(mended.done), "copy": copy, "left": [check.view() for check in left]}
            )
        )
    else:
        for words in mended.done or ("nothing had to be rebuilt",):
            print(escape(words))
        if mended.copy is not None:
            print(escape(f"a copy of the store before this is kept in {mended.copy}; delete it when you are sure"))
        for check in left:
            print(paint(escape(check.words), "bad"))
            print(f"  {paint(escape(check.mend), 'bold')}")
    if left:
        raise Failure(code=FAILED)
