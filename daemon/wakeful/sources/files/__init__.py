"""File bindings: which paths they match, what these hold, and when to look at them."""
