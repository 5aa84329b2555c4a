"""A Kafka and a Milvus on this machine, for trying things out and for the tests.

Both are the real thing, started as ordinary background processes and bound to 127.0.0.1 only: Apache Kafka (KRaft,
broker and controller in one process) from its Maven artifacts, and `milvus-lite server`. No container engine.

Each instance is one folder. Nothing in it says which process runs: the command line of every part carries its folder,
and that is how a part is found again. A pid file can be stale, or name a process that reused the pid; a command line
cannot.
"""
