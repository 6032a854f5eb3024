"""Constructs the daemon: the shared parts, the edges, and the whole."""
