"""Semantic search over the history: writes turns to Milvus and searches them.

Milvus is downstream of the topic `turns`. It may be unavailable for any time; only search falls behind.
"""
