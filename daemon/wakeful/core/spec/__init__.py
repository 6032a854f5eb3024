"""Specs as frozen values: sessions, agents, budgets, limits."""
