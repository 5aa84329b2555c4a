"""Kafka clients, topics and their configuration."""
