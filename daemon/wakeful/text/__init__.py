"""Text that people, terminals and models read: escaping, quoting, counting, Unicode. Knows nothing of sessions."""
