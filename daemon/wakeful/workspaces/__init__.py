"""A fork's own folder for files: made from its parent's, compared with it in three ways, and merged back."""
