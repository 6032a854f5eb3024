"""The store without a daemon: what `verify`, `restore` and `doctor` do to a state folder.

A second, small wiring: it constructs the embedded log's reader, and nothing that writes to a live store.
"""

from wakeful.eventlog.backup import restore
from wakeful.eventlog.sqlite import judge_state, open_reader
from wakeful.eventlog.statelock import find_holder
from wakeful.eventlog.store import find_file_system, is_affected

__all__ = ["find_file_system", "find_holder", "is_affected", "judge_state", "open_reader", "restore"]
