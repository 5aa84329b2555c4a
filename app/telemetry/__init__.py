"""Metrics, health, logs and traces of a worker."""
