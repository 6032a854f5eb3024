"""The system calls: their values, and the functions that judge each call on the present state."""
