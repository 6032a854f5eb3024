"""Values of an agent's work: turns, steps, tokens, prices, and summaries made without a model."""
