"""Backup and restore of a store. Every copy is verified.

`back_up` runs next to a live daemon. `restore` needs a stopped daemon and takes its lock. A restore builds the new
folder completely, then swaps it in by renames. If the process is killed in between, the next open finishes the restore.
The old folder is always kept.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import apsw

from wakeful.eventlog.contract import BackupRefused, Progress, Report, RestoreRefused, StoreDamaged, StoreUnfinished
from wakeful.eventlog.sqlite.anchor import AnchorFile, Mark, judge_store, read_anchor
from wakeful.eventlog.sqlite.files import StoreFiles, connect_reader, prepare_folder, read_mark, read_roll
from wakeful.eventlog.sqlite.schema import copy_database, load_migrations, refuse_newer
from wakeful.eventlog.sqlite.verification import verify_store
from wakeful.eventlog.state_lock import lock_state
from wakeful.system.private_files import sync_folder
from wakeful.text.display import count


def back_up(files: StoreFiles, path: Path, progress: Progress | None = None) -> Report:
    """Copy the store to a new file while appends continue, and verify the copy. `progress` counts verified records."""
    if path.exists():
        raise BackupRefused(f"{path} exists; a backup never overwrites, choose another name")
    if not path.parent.is_dir():
        raise BackupRefused(f"{path.parent} is not a folder; create it or choose another")
    source = connect_reader(files.database)
    try:
        copy_database(source, path)
    finally:
        source.close()
    report = verify_store(path, None, progress=progress)
    if not report.is_sound:
        first = report.findings[0]
        raise BackupRefused(
            f"{path} was written but does not verify ({first.where}: {first.what}); "
            "run wakeful verify on the store itself"
        )
    return report


def restore(
    backup: Path, state_dir: Path, *, even_if_newer: bool = False, progress: Progress | None = None
) -> Path | None:
    """Replace the store by a backup. Returns the folder in which the old store is kept, None if there was none.

    Refused while a daemon runs. Also refused, unless `even_if_newer`, if the store or its anchor has records that the
    backup lacks.
    """
    if not backup.is_file():
        raise RestoreRefused(f"{backup} is not a file; give the path of a backup")
    files = StoreFiles(state_dir)
    lock = lock_state(state_dir)
    try:
        _check_backup(backup, progress)
        if not even_if_newer:
            _refuse_newer_store(files, backup)
        prepare_folder(files)
        _build_incoming(files, backup)
        aside = _put_aside(files)
        finish_restore(files)
        return aside
    finally:
        lock.release()


def finish_restore(files: StoreFiles) -> None:
    """Swap in a complete incoming folder if the old one was already moved away. Otherwise do nothing."""
    if files.incoming.is_dir() and not files.database.exists() and not files.anchor.exists():
        if files.folder.is_dir():
            files.folder.rmdir()
        os.replace(files.incoming, files.folder)
        sync_folder(files.state_dir)


def _check_backup(backup: Path, progress: Progress | None) -> None:
    connection = connect_reader(backup)
    try:
        refuse_newer(connection, load_migrations(), backup)
        report = verify_store(backup, None, progress=progress)
        if not report.is_sound:
            first = report.findings[0]
            raise RestoreRefused(f"{backup} does not verify ({first.where}: {first.what}); choose another backup")
    finally:
        connection.close()


def _refuse_newer_store(files: StoreFiles, backup: Path) -> None:
    """Refuse a backup that lacks acknowledged records, even if the store has lost them and only its anchor proves them.

    The backup must contain the mark of the store and the mark of the anchor with the same roll. Fewer records are
    refused, and so is another history of the same length.
    """
    anchor, newest = read_anchor(files.anchor), _read_newest(files)
    marks = [mark for mark in (anchor, newest) if mark is not None and mark.position]
    connection = connect_reader(backup)
    try:
        held = read_mark(connection)
        if all(judge_store(mark, held, read_roll(connection, mark.flush)) is None for mark in marks):
            return
    finally:
        connection.close()
    present = f"holds {count(newest.position, 'record')}" if newest is not None else "cannot be read any more"
    acknowledged = max(mark.position for mark in marks)
    is_other = held.position >= acknowledged
    raise RestoreRefused(
        f"the store in {files.folder} {present} ({acknowledged} acknowledged), {backup} holds {held.position}"
        f"{' of another history' if is_other else ''}; "
        "to go back all the same, repeat with --even-if-newer: the present store is kept aside"
    )


def _read_newest(files: StoreFiles) -> Mark | None:
    """Read the mark of the present store. None if it is gone or cannot be read."""
    if not files.database.exists():
        return None
    try:
        connection = connect_reader(files.database)
        try:
            return read_mark(connection)
        finally:
            connection.close()
    except (StoreDamaged, StoreUnfinished, apsw.Error):
        return None


def _build_incoming(files: StoreFiles, backup: Path) -> None:
    """Build a complete log folder. Its last step is the rename to the name that `finish_restore` looks for."""
    building = files.incoming.with_name("log.building")
    for leftover in (building, files.incoming):
        if leftover.exists():
            shutil.rmtree(leftover)
    building.mkdir(mode=0o700)
    source = connect_reader(backup)
    try:
        copy_database(source, building / files.database.name)
        AnchorFile(building / files.anchor.name, read_mark(source)).close()
    finally:
        source.close()
    os.replace(building, files.incoming)
    sync_folder(files.state_dir)


def _put_aside(files: StoreFiles) -> Path | None:
    if not files.database.exists() and not files.anchor.exists():
        return None
    number = 1
    while (aside := files.state_dir / f"log.before-restore-{number}").exists():
        number += 1
    os.replace(files.folder, aside)
    sync_folder(files.state_dir)
    return aside
