"""Kafka clients, topics and their configuration.

Whoever imports from here reads, connects and logs in the ways of `reading`, `reconnecting` and `logs`, as do all other
consumers and clients of the process.
"""

from app.kafka import logs, reading, reconnecting

reading.install()
reconnecting.install()
logs.install()
