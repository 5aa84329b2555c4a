"""Kafka Connect and PostgreSQL on this machine, and the proof that rows equal turns however often Connect is killed."""
