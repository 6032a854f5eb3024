"""The work behind the routes: the steps of calls, bundles, retention, followers. It uses the `Service`, and no HTTP.

The routes call this work for a request. The package `service` also calls it: for the hourly retention, and for the
records of followers.
"""
