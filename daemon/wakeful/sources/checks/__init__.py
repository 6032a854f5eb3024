"""Bindings without events of their own: probes and services, checked at intervals."""
