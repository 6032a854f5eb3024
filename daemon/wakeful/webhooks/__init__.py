"""Webhooks of other programs: whose signature counts, what a delivery is called, and what its payload says."""
