"""The schema of the store and its migrations: numbered steps from an empty file to the present tables.

The engine calls `migrate` once when it opens a store, before any other write. A step is a file
`migrations/NNN_words.sql`, applied in one transaction together with its number as the store's version. A released step
is never edited. Before a step changes an existing store, a copy is made through the backup API and kept. A store of a
newer release is refused and not changed.
"""

from __future__ import annotations

import functools
import os
from importlib import resources
from pathlib import Path

import apsw
import msgspec

from wakeful.eventlog.contract import NewerSchema
from wakeful.system.private_files import sync_folder


class Migration(msgspec.Struct, frozen=True):
    number: int
    name: str
    sql: str


# Cached, because this took a third of the time to open a store for reading.
@functools.cache
def load_migrations() -> tuple[Migration, ...]:
    """Load the steps of this release, in order, numbered from 1 without a gap."""
    folder = resources.files("wakeful.eventlog.sqlite") / "migrations"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return tuple(Migration(int(name[:3]), name, (folder / name).read_text(encoding="utf-8")) for name in names)


def read_version(connection: apsw.Connection) -> int:
    version: int = connection.execute("PRAGMA user_version").get
    return version


def refuse_newer(connection: apsw.Connection, migrations: tuple[Migration, ...], database: Path) -> None:
    """Raise NewerSchema for a store with a schema that this release does not know."""
    found, known = read_version(connection), migrations[-1].number
    if found > known:
        raise NewerSchema(
            f"{database} has schema {found}, this release knows up to {known}; "
            "install the newer wakeful again, the store was not touched"
        )


def migrate(connection: apsw.Connection, migrations: tuple[Migration, ...], database: Path) -> None:
    """Bring the store to the newest schema. If it is killed, the next open continues after the last complete step."""
    found = read_version(connection)
    for step in migrations:
        if step.number <= found:
            continue
        if found > 0:
            copy_database(connection, database.with_name(f"before-migration-{step.number:03}.db"))
        connection.execute(f"BEGIN IMMEDIATE; {step.sql} ; PRAGMA user_version = {step.number}; COMMIT")
    if found < migrations[-1].number:
        # A schema that is only in the write-ahead log would be lost with it, so it is moved into the main file now.
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)


def copy_database(source: apsw.Connection, target: Path) -> None:
    """Write a consistent, durable copy to one private file, which gets its name when it is complete."""
    partial = target.with_name(target.name + ".partial")
    for leftover in (partial, partial.with_name(partial.name + "-journal")):
        leftover.unlink(missing_ok=True)
    os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    copy = apsw.Connection(str(partial), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        with copy.backup("main", source, "main") as backup:
            backup.step(-1)
        copy.execute("PRAGMA journal_mode = DELETE")  # a single file, without a -wal that could be forgotten
    finally:
        copy.close()
    _sync_file(partial)
    os.replace(partial, target)
    sync_folder(target.parent)


def _sync_file(path: Path) -> None:
    """Flush a file.

    Only a closed copy may be opened here, which no connection of this process has open (see files.py).
    """
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
