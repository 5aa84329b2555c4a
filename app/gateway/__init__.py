"""The HTTP edge: requests in, live answers out, with nothing but Kafka and Milvus behind it.

A gateway keeps no state that another one lacks: it writes to `requests` and `controls`, reads all of `tokens` without a
consumer group, and finds what it has not seen in the log. Any number of them may stand behind any balancer, and a
client that was cut off goes on at another one.
"""
