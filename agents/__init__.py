"""What happens to the records of a topic, a file a topic.

`requests`, `controls`, `turns` and `intake` (topics of others) are Faust agents, members of the consumer group.
`usage` and `tool_results` read beside the group (app/delivery/follower.py), so that the group has the same subscription
with and without them.
"""
