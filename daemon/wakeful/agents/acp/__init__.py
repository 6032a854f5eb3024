"""External coding agents, driven over the Agent Client Protocol."""
