"""Rebuilds derived data that disagrees with the records: indexes, clock steps, snapshots, keys and the search index.

Called by `wakeful doctor --mend` with the daemon stopped; it takes the daemon's lock. It never writes to a record or a
payload. Damage there is only reported, and needs a backup. Before the first write it makes and keeps a copy of the
store, as before a migration. A second run finds nothing to do and writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import apsw

from wakeful.eventlog import chain
from wakeful.eventlog.contract import Finding, Mended, Progress, Report, StoreBehindAnchor, StoreDamaged, StoreFull
from wakeful.eventlog.sqlite import payload_check, search_index
from wakeful.eventlog.sqlite.anchor import judge_store, read_anchor
from wakeful.eventlog.sqlite.files import (
    StoreFiles,
    connect_reader,
    connect_writer,
    count_tables,
    read_mark,
    read_roll,
    refuse_affected,
    say_unfinished,
)
from wakeful.eventlog.sqlite.queries import try_opening
from wakeful.eventlog.sqlite.schema import copy_database, load_migrations, refuse_newer
from wakeful.eventlog.sqlite.verification import verify_store
from wakeful.eventlog.state_lock import lock_state
from wakeful.text.display import count

# The one named index. It can be dropped and made again, even if its pages are damaged.
_EVENT_INDEX = "event_by_seq"
_WORST_FIRST = 3


def mend_store(state_dir: Path, progress: Progress | None = None) -> Mended:
    """Make the derived data agree with the records. Returns what was done and what is still wrong."""
    refuse_affected(apsw.sqlite_lib_version())
    files = StoreFiles(state_dir)
    if not files.database.exists():
        raise StoreDamaged(
            f"{files.database} does not exist; there is nothing to mend, go back to a backup with: "
            "wakeful restore BACKUP"
        )
    lock = lock_state(state_dir)
    try:
        _refuse_unsound_store(files)
        done = _mend_search(files)
        report = verify_store(files.database, files.anchor, progress=progress)
        if not any(finding.is_derived for finding in report.findings):
            return Mended(tuple(done), None, report)
        return _mend_database(files, report, done)
    except (apsw.FullError, OSError) as error:
        raise StoreFull(
            f"{files.folder} cannot be mended: {error}; a copy of the store and its indexes need space next to it; "
            "nothing was lost: free some space and repeat"
        ) from error
    finally:
        lock.release()


def find_search_damage(state_dir: Path) -> str | None:
    """Describe the damage of the search index. None if it is sound or absent. Without the index no data is lost."""
    files = StoreFiles(state_dir)
    if not files.search.exists():
        return None
    try:
        index = apsw.Connection(str(files.search), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            found = [line for (line,) in index.execute("PRAGMA integrity_check") if line != "ok"]
        finally:
            index.close()
    except (*payload_check.UNREADABLE, apsw.CantOpenError) as error:
        return str(error)
    return "; ".join(found[:_WORST_FIRST]) or None


def _refuse_unsound_store(files: StoreFiles) -> None:
    """Refuse a store that a daemon would not write to, because new indexes do not bring lost records back."""
    connection = connect_reader(files.database)
    try:
        refuse_newer(connection, load_migrations(), files.database)
        if count_tables(connection) == 0:
            raise say_unfinished(files.database)
        try_opening(connection)
        anchor = read_anchor(files.anchor)
        wrong = judge_store(anchor, read_mark(connection), read_roll(connection, anchor.flush) if anchor else None)
    except payload_check.UNREADABLE as error:
        raise StoreDamaged(
            f"{files.database} cannot be read: {error}; that cannot be mended, go back to a backup with: "
            "wakeful restore BACKUP"
        ) from error
    finally:
        connection.close()
    if wrong is not None:
        raise StoreBehindAnchor(
            f"{files.folder}: {wrong}; that cannot be mended, go back to a backup with: wakeful restore BACKUP"
        )


def _mend_search(files: StoreFiles) -> list[str]:
    wrong = find_search_damage(files.state_dir)
    if wrong is None:
        return []
    search_index.remove(files)
    return [f"the search index was damaged ({wrong}) and was removed; the next search rebuilds it"]


def _mend_database(files: StoreFiles, report: Report, done: list[str]) -> Mended:
    copy = _copy_aside(files)
    connection = connect_writer(files.database)
    try:
        # Indexes first, because everything else is found through them.
        if any(_is_about_index(finding) for finding in report.findings):
            done += _rebuild_indexes(connection)
        for mend in (_mend_clock_steps, _drop_snapshots, _drop_keys):
            done += _in_one_step(connection, mend)
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except payload_check.UNREADABLE as error:
        done.append(f"then the repair failed: {error}")
    finally:
        connection.close()
    return Mended(tuple(done), copy, verify_store(files.database, files.anchor))


def _copy_aside(files: StoreFiles) -> Path:
    number = 1
    while (copy := files.folder / f"before-mend-{number:03}.db").exists():
        number += 1
    source = connect_reader(files.database)
    try:
        copy_database(source, copy)
    finally:
        source.close()
    return copy


def _is_about_index(finding: Finding) -> bool:
    return finding.is_derived and finding.where.startswith(("index ", "store"))


def _rebuild_indexes(connection: apsw.Connection) -> list[str]:
    try:
        with connection:
            connection.execute("REINDEX")
        return ["all indexes were rebuilt from the records"]
    except payload_check.UNREADABLE:
        # The pages of an index cannot even be read, and SQLite must read them to free them.
        return _replace_event_index(connection)


def _replace_event_index(connection: apsw.Connection) -> list[str]:
    """Drop the index without reading it, make it again, and free the unused pages."""
    sql = connection.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (_EVENT_INDEX,)).get
    # A defensive connection would refuse this. Ours is not defensive, and no other process has the store open.
    connection.execute("PRAGMA writable_schema = ON")
    with connection:
        connection.execute("DELETE FROM sqlite_schema WHERE type = 'index' AND name = ?", (_EVENT_INDEX,))
    connection.execute("PRAGMA writable_schema = RESET")
    with connection:
        connection.execute(sql)
    connection.execute("VACUUM")
    with connection:
        connection.execute("REINDEX")
    return [f"the index {_EVENT_INDEX} was damaged and was rebuilt from the records"]


def _in_one_step(connection: apsw.Connection, mend: Callable[[apsw.Connection], Iterator[str]]) -> list[str]:
    with connection:
        done = list(mend(connection))
    return done


def _mend_clock_steps(connection: apsw.Connection) -> Iterator[str]:
    """Find again which records are earlier than the record before them, in one pass over the records."""
    connection.execute(
        "CREATE TEMP TABLE true_step (session INTEGER, seq INTEGER, PRIMARY KEY (session, seq)) WITHOUT ROWID"
    )
    connection.execute(
        "INSERT INTO true_step SELECT session, seq FROM (SELECT session, seq, at, lag(at) OVER (PARTITION BY session "
        "ORDER BY seq) AS before "
        "FROM event) WHERE at < before"
    )
    missing = "SELECT session, seq FROM temp.true_step EXCEPT SELECT session, seq FROM main.clock_step"
    surplus = "SELECT session, seq FROM main.clock_step EXCEPT SELECT session, seq FROM temp.true_step"
    changed = (
        connection.execute(f"SELECT count(*) FROM ({missing})").get
        + connection.execute(f"SELECT count(*) FROM ({surplus})").get
    )
    if changed:
        connection.execute("DELETE FROM clock_step")
        connection.execute("INSERT INTO clock_step SELECT session, seq FROM temp.true_step")
        yield f"the table of clock changes was corrected from the records' times: {count(changed, 'row')}"
    connection.execute("DROP TABLE temp.true_step")


def _drop_snapshots(connection: apsw.Connection) -> Iterator[str]:
    rows = connection.execute(
        "SELECT n.session, s.id, n.seq, CAST(n.state AS BLOB), n.state_hash FROM snapshot n JOIN session s "
        "ON s.key = n.session"
    )
    damaged = [(key, name, seq) for key, name, seq, state, digest in rows if chain.hash_bytes(state) != digest]
    for key, name, seq in damaged:
        connection.execute("DELETE FROM snapshot WHERE session = ? AND seq = ?", (key, seq))
        yield f"session {name}: the damaged snapshot at seq {seq} was dropped; a replay replaces it"


def _drop_keys(connection: apsw.Connection) -> Iterator[str]:
    """Drop keys of records that do not exist, because they would answer a repeated call without a record."""
    rows = connection.execute(
        "SELECT i.session, s.id, i.key FROM idempotency i JOIN session s ON s.key = i.session "
        "WHERE NOT (i.first_seq BETWEEN 1 AND i.last_seq "
        "AND i.last_seq <= (SELECT coalesce(max(seq), 0) FROM event WHERE session = i.session))"
    ).fetchall()
    for session, name, key in rows:
        connection.execute("DELETE FROM idempotency WHERE session = ? AND key = ?", (session, key))
        where = f"session {name}: the key {key!r}"
        yield f"{where} named records that do not exist and was dropped; its call can be repeated"
