"""Semantic search over what users and models have written: indexes turns in a vector database, and searches them.

The index is downstream of the topic `turns`. Its database may be unavailable for any time; only search falls behind.
`vector_store.py` is the interface of the database, and `milvus` the only implementation. `opening.py` chooses it, and
nothing outside `milvus` imports pymilvus.
"""
