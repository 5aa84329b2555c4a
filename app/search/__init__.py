"""Semantic search over what users and models have written: indexes turns in a vector database, and searches them.

The index follows the topic `turns`. While its database is away, only search falls behind.
`vector_store.py` is the interface of the database, and `milvus` the only implementation. `opening.py` chooses it, and
nothing outside `milvus` imports pymilvus.
"""
