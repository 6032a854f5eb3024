"""A run's isolation: `reach` derives what the run may touch from its order; `confined_spawn` has the kernel enforce it
before the run's first instruction."""
