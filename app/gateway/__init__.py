"""The HTTP gateway: accepts requests and streams answers, with only Kafka and Milvus behind it.

Run any number behind a load balancer: what a gateway holds can be read from the log again. It writes to `requests` and
`controls`. A lone gateway reads all of `tokens`; those of a group share its partitions and the limits of callers, and
pass streams on to each other (`sharing`). Older answers are looked up in the log. A client that was disconnected can
continue at any gateway.
"""
