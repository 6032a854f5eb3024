"""The process in which an agent works: outside the daemon, confined like any run, connected by its run's socket."""
