"""The construction of the daemon: its ground, its edges, and the whole."""
