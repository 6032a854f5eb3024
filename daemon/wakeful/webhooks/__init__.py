"""Incoming webhooks: the signatures of the senders, the id and event of a delivery, and its payload."""
