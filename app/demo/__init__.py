"""`parley demo`: two users chat through a real Kafka, and what they said is found again by its meaning.

Everything is as in production, only on one machine: the parts are those of `parley local`, the worker is
`faust -A app worker`, and the talk goes through the topics and comes back by the reader rule.
"""
