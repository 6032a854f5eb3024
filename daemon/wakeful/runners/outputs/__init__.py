"""Outputs of runs: written to a private area first, then put in place, or found where the run left them."""
