"""A run's isolation: `reach` derives from a run's order the places that the run may touch. `confined_spawn` makes the
kernel enforce this before the run's first instruction."""
