"""The durable log: the only truth of the daemon.

`contract` holds the ports that callers know. `sqlite` is the engine of the daemon, `memory_engine` the engine of fast
tests. `chain`, `group_commit`, `imports` and `search_text` are pure rules that both engines share. Only the reactor
appends; any caller may read. Only `codec` knows what an event means. Elsewhere payloads are bytes, times are given, and
no clock is read.
"""
