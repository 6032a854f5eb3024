"""The gate: it finds out who calls and how far they reach. Connections, callers, tokens, scopes."""
