"""Many rows in few statements.

Every step of a statement lets go of the interpreter's lock and must win it back from the event loop, so a group of
64 rows inserted one by one can wait for a busy loop 64 times. Rows are therefore inserted 64, 8 or 1 at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import chain

import apsw

_CHUNKS = (64, 8, 1)


def insert_rows(connection: apsw.Connection, table: str, columns: int, rows: Sequence[tuple[object, ...]]) -> None:
    """Insert rows in order; `table` and `columns` are ours, never a caller's."""
    start = 0
    for chunk in _CHUNKS:
        while len(rows) - start >= chunk:
            values = tuple(chain.from_iterable(rows[start : start + chunk]))
            connection.execute(_write_insert(table, columns, chunk), values)
            start += chunk


@cache
def _write_insert(table: str, columns: int, rows: int) -> str:
    row = f"({', '.join('?' * columns)})"
    return f"INSERT INTO {table} VALUES {', '.join([row] * rows)}"
