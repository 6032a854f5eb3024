"""The running daemon: its wiring, its one loop, its life, and the start of runs."""
