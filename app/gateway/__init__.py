"""The HTTP gateway: accepts requests and streams answers, with only Kafka and Milvus behind it.

Gateways are stateless; run any number behind a load balancer. A gateway writes to `requests` and `controls`, reads all
of `tokens` without a consumer group, and looks up older answers in the log. A client that was disconnected can continue
at any gateway.
"""
