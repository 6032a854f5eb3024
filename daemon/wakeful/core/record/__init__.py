"""The record: events, and the state of a session as their fold."""
