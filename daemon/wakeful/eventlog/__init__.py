"""The durable log: the only truth of the daemon.

`contract` holds the ports that callers know. `sqlite` is the engine of the daemon, `memory_engine` the engine of fast
tests. `chain`, `group_commit`, `imports` and `search_text` are pure rules that both engines share. `state_lock` locks a
state folder for one daemon. Only the reactor appends; any caller may read. Only `codec` knows the meaning of an event.
All other modules handle payloads as bytes, get times from their callers, and never read the wall clock.
"""
