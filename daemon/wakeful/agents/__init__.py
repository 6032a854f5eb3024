"""The process in which an agent thinks: outside of the daemon, confined like any run,
speaking to it over its run's socket."""
