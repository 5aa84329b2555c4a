"""Kafka and Milvus on this machine, for trying Parley out and for the tests.

Both are the real servers, started as background processes and bound to 127.0.0.1: Apache Kafka (KRaft, broker and
controller in one process) from its Maven artifacts, and `milvus-lite server`. No containers are needed.

Each instance is one folder. There are no pid files: the command line of each process contains its folder, and that is
how it is found. A pid file can be stale, or name another process with the same pid; a command line cannot.
"""
