"""What a model sees: the conversation with it, read from the log, and what a run begins with, put together in one order."""
