"""Secrets by name: finds their values, decides which ones a run gets, and redacts the values from everything stored."""
