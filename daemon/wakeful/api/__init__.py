"""The HTTP/1.1 + JSON API, on the UNIX socket and the TCP port. The command line, runs and the dashboard use it.

`service` is the interface to the daemon, `app` has the routes, `server` binds and serves, `gate` identifies callers.
Nothing here decides or records: reads go to views, calls go to the service.
"""
