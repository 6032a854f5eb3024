"""Notifications to people: records of the log become messages, and messages are delivered at least once."""
