"""The context of a model: instructions, facts, changes and conversation, assembled from the log."""
