"""A run's isolation: `reach` derives from a run's order what the run may touch, and `confined_spawn` makes the kernel
enforce it before the run's first instruction."""
