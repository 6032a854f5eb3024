"""How the daemon is doing: findings for people, numbers for Prometheus, spans for OpenTelemetry."""
