"""Reading the log back: the state at a position, the sessions at a start, conversations, output of runs,
calls that were repeated."""
