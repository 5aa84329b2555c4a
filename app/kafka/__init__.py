"""Kafka clients, topics and their configuration.

An import of this package makes all consumers and clients of the process read, connect and log in the ways of
`reading`, `reconnecting` and `logs`.
"""

from app.kafka import logs, reading, reconnecting

reading.install()
reconnecting.install()
logs.install()
