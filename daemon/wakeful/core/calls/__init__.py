"""The system calls: their values, and the judgement of each on the present state."""
