"""Monitoring of the daemon: findings for people, metrics for Prometheus, spans for OpenTelemetry."""
