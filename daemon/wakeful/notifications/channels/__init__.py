"""The ways a message leaves: one module for each, and `send.py`, which chooses."""
