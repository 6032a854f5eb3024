"""The work behind the routes: the steps of calls, bundles, retention, followers. It knows the service, and no HTTP.

The routes carry it out for a request; `service` carries out retention by itself, and gives followers their records.
"""
