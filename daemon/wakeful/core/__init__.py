"""Values and pure functions: no I/O, no clock, no randomness.

Sources report observations; `decide` turns them into events; the reducer folds events into
state; `plan` names actions. Time and ids arrive in observations, so the whole daemon can be
run in simulation from a seed.
"""
