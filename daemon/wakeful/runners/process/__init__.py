"""Processes of runs: their start, their marks, their limits, their output, and the end of the whole tree."""
