"""The HTTP gateway: accepts requests and streams answers, with only Kafka and Milvus behind it.

Run any number behind a load balancer. A gateway writes to `requests` and `controls`. A lone one reads all of `tokens`;
those that share their work join a group, divide the partitions and the limits of callers among them, and pass streams
on to each other (`peers`). What a gateway holds can be read from the log again, so a client that was disconnected can
continue at any of them.

A room imports from the rooms below its own, and never from those above; a test holds them to this list.

    server        the process: its sockets, its signals, its end
    application   the ASGI application: all routes, and the chat page (made in `page`, built into `static`)
    openai        OpenAI's API: bodies, replies, stored responses, routes
    asking        from a body to a record: Parley's own bodies and routes, and the parts of one gateway, put together
    answers       where events come from: memory, the log, another gateway; how they leave as a stream
    peers         gateways among themselves: which of them reads a partition, limits across all
    erasure       which data is erased, and how far an erasure has come
    callers       who asks, by keys and tokens, and how much: rates, backlog, fair queues
    edge          HTTP itself: connections, middlewares, errors, replies to readers that may be slow
"""
