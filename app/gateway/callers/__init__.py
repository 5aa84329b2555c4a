"""Who asks, by keys and tokens, and how much of it: rates, backlog, fair queues."""
