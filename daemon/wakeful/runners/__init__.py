"""Runners carry out what the plan names: they start a run's processes, end them, and report what became of them."""
