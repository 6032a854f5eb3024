"""HTTP/1.1 + JSON on the UNIX socket: what the command line, runs and later the dashboard speak.

`service` says what the daemon offers, `app` has the routes, `server` binds and serves, `peers` knows who called.
Nothing here decides or records: reads go to views, calls go to the service.
"""
