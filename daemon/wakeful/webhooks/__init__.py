"""Incoming webhooks: the signatures of the senders, the id and event of a delivery, and its payload.

`api/routes/webhooks.py` calls these pure functions. Nothing here reads a secret, records a delivery, or does I/O.
"""
