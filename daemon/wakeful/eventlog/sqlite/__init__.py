"""The embedded engine of the log: one SQLite file, one writer, any number of readers.

`engine` opens it; the other modules are its parts. Only this folder knows SQLite.
"""

from wakeful.eventlog.sqlite.engine import SqliteLog, exit_process, judge_state, open_log, open_reader

__all__ = ["SqliteLog", "exit_process", "judge_state", "open_log", "open_reader"]
