"""Which paths a binding means, and what the daemon sees of them now."""
