"""Secrets by name: where their values are found, what a run is given,
and how they are kept out of everything that lasts."""
