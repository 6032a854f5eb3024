"""Values of an agent's work: turns, steps, tokens, prices, and the summary that needs no model."""
