"""The HTTP/1.1 + JSON API, on the UNIX socket and the TCP port. The command line, runs and the dashboard use it.

`contract` is the interface to the daemon, `app` has the routes, `server` and `tcp_port` listen, `gate` identifies
callers. Nothing here decides or records: views answer reads, and the daemon carries out calls.
"""
