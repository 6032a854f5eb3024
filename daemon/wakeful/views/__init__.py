"""The views of the state for people: pure functions that return plain values ready for JSON.

The API serves them, and the command line and the dashboard show them, so that they cannot disagree. Nothing here reads
a clock, a file or the log: the moment and the records are arguments.
"""
