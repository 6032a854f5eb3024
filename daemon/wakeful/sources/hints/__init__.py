"""Watchers of folders under one contract. They only hint where to look sooner."""
