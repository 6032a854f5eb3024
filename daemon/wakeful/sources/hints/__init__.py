"""Watchers of folders under one contract: they say where to look sooner, never what is true."""
