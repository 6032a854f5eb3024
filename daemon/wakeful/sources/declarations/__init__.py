"""The specs themselves as something to watch."""
