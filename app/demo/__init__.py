"""`parley demo`: two users chat through a real Kafka, and a search finds their turns.

Everything is as in production, on one machine: the servers are those of `parley local`, the worker is `faust -A app
worker`, and the chat uses the topics and the reader rule.
"""
