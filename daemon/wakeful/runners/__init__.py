"""Runners carry out the plan: they start the processes of a run, end them, and report how they ended."""
