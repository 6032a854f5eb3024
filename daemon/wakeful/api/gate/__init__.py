"""Who is calling, and what they may reach: connections, callers, tokens, scopes."""
