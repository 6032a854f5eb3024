"""Values and pure functions: no I/O, no clock, no randomness.

Sources report observations; `decide` turns them into events; the reducer folds events into
state; `plan` derives actions from state. Time and ids come from outside, so the whole daemon
can be simulated from a seed.
"""
