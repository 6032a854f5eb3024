"""Copies out of the store and back in, each verified before it counts.

`back_up` runs beside a live daemon; `restore` needs the daemon stopped and takes its lock. A restore builds the new folder
complete, then swaps it in by renames: killed between them, the next open finishes it. The old folder is kept aside, always.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from wakeful.eventlog.anchor import AnchorFile, Mark, read_anchor, sync_folder
from wakeful.eventlog.contract import BackupRefused, Report, RestoreRefused, StoreDamaged
from wakeful.eventlog.migrate import copy_database, load_migrations, refuse_newer
from wakeful.eventlog.statelock import lock_state
from wakeful.eventlog.store import StoreFiles, connect_reader, prepare_folder, read_mark
from wakeful.eventlog.verify import verify_store


def back_up(files: StoreFiles, path: Path) -> Report:
    """Copy the store to a new file while appends go on, and verify the copy."""
    if path.exists():
        raise BackupRefused(f"{path} exists; a backup never overwrites, choose another name")
    if not path.parent.is_dir():
        raise BackupRefused(f"{path.parent} is not a folder; create it or choose another")
    source = connect_reader(files.database)
    try:
        copy_database(source, path)
    finally:
        source.close()
    report = verify_store(path, None)
    if not report.is_sound:
        first = report.findings[0]
        raise BackupRefused(f"{path} was written but does not verify ({first.where}: {first.what}); run wakeful verify on the store itself")
    return report


def restore(backup: Path, state_dir: Path, *, even_if_newer: bool = False) -> Path | None:
    """Put a backup in the place of the store; returns the folder where the old one was put aside, None if there was none.

    Refused while a daemon runs, and, unless told `even_if_newer`, when the store holds records the backup does not."""
    if not backup.is_file():
        raise RestoreRefused(f"{backup} is not a file; give the path of a backup")
    files = StoreFiles(state_dir)
    lock = lock_state(state_dir)
    try:
        mark = _check_backup(backup)
        if not even_if_newer:
            _refuse_newer_store(files, backup, mark)
        prepare_folder(files)
        _build_incoming(files, backup)
        aside = _put_aside(files)
        finish_restore(files)
        return aside
    finally:
        lock.release()


def finish_restore(files: StoreFiles) -> None:
    """Swap a complete incoming folder in when the old one is out of the way; nothing to do otherwise."""
    if files.incoming.is_dir() and not files.database.exists() and not files.anchor.exists():
        if files.folder.is_dir():
            files.folder.rmdir()
        os.replace(files.incoming, files.folder)
        sync_folder(files.state_dir)


def _check_backup(backup: Path) -> Mark:
    connection = connect_reader(backup)
    try:
        refuse_newer(connection, load_migrations(), backup)
        report = verify_store(backup, None)
        if not report.is_sound:
            first = report.findings[0]
            raise RestoreRefused(f"{backup} does not verify ({first.where}: {first.what}); choose another backup")
        return read_mark(connection)
    finally:
        connection.close()


def _refuse_newer_store(files: StoreFiles, backup: Path, mark: Mark) -> None:
    """What was acknowledged counts, whether the store still has it or only its anchor remembers it."""
    if not files.database.exists():
        return
    try:
        connection = connect_reader(files.database)
        newest = read_mark(connection)
        connection.close()
    except StoreDamaged:
        return
    anchor = read_anchor(files.anchor)
    if newest.store == mark.store and newest.position <= mark.position:
        return
    acknowledged = max(newest.position, anchor.position if anchor else 0)
    raise RestoreRefused(
        f"the store in {files.folder} holds {newest.position} records ({acknowledged} acknowledged), {backup} holds {mark.position}; "
        "to go back all the same, repeat with --even-if-newer: the present store is kept aside"
    )


def _build_incoming(files: StoreFiles, backup: Path) -> None:
    """A complete log folder under another name; it gets the name `finish_restore` knows as its last step."""
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
