"""Probes and services: bindings whose changes no event reports. They are checked at intervals."""
