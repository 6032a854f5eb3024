"""The rules: what is owed, what may start, what a run's end changes, in which order sessions run."""
