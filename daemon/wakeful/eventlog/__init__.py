"""The durable log: the only truth of the daemon.

`contract` says what any engine promises; `sqlite` is the embedded engine. Only the reactor appends, anyone may read.
Nothing in here knows what an event means: payloads are bytes, moments are given, and no clock is read.
"""
