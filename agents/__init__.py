"""What happens to the records of a topic, a file a topic.

`requests`, `controls` and `turns` get the records that the consumer group reads. `usage`, `tool_results` and `intake`
(topics of others) read beside the group (app/delivery/follower.py), so that the group has the same subscription
with and without them.
"""
