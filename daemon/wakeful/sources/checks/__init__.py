"""Bindings that no event reports, so they are checked at intervals: probes and services."""
