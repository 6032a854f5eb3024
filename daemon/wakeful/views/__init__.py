"""State to what people see: pure functions that return plain values ready for JSON.

The API serves them, the command line prints them, and the dashboard shows the same, so they cannot disagree.
Nothing here reads a clock, a file or the log by itself: the moment and the records come in.
"""
