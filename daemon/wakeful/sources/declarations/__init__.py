"""Watches the specs themselves."""
