"""File bindings: which paths they match, the contents of these paths, and when to look at them."""
