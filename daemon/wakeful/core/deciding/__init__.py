"""The rules: which causes are owed, which session may start, how a run ends, in which order sessions run."""
