"""Monitoring of the daemon: findings for people, numbers for Prometheus, spans for OpenTelemetry."""
