"""The history in Milvus: what a turn is there, how it gets in, how it is found again.

Milvus lies downstream of the topic `turns`: it may be away for any time, and search alone is late.
"""
