"""A fork's own place for files: made apart from its parent's, compared with it three ways, brought back by a merge."""
