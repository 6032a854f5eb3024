"""Reads the past from the log: the state at a position, the sessions at a start, conversations, the output of runs,
repeated calls."""
