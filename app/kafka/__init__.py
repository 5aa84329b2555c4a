"""Kafka clients, topics and their configuration.

Whoever imports from here reads and connects in the ways of `reading` and `reconnecting`, as do all other consumers and
clients of the process.
"""

from app.kafka import reading, reconnecting

reading.install()
reconnecting.install()
