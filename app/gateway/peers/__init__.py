"""Gateways that share the partitions of `tokens`, so that each token is read by one of them.

    client --HTTP--> gateway A                     gateway B, owner of the user's partition
                        |  follower: events() --open--> follower: events() <-- memory <-- tokens
                        |            <--------events---       |
                        |  admission: admit() --charge-> limits of the user

1. With `PARLEY_GATEWAY_ADVERTISE`, a gateway joins the consumer group `<app id>-gateways-2`. The group divides the
   partitions, and every assignment carries the addresses of all owners (assignor.py, membership.py, directory.py).
2. The owner of a partition reads its tokens, and keeps the limits of its users.
3. Any gateway serves any user. For a user of another's partition it opens a stream at the owner, over one WebSocket
   between the two (frames.py, link.py, session.py), and passes the events on. Its port is not the public one
   (port.py), and both ends prove first that they have the same secret (trust.py).
4. When a partition moves, or its owner dies, the stream is opened again at the new owner, from the next index. The
   client notices a pause. A new owner reads the beginning of an answer from the log, as a restarted gateway does.

Requests and controls are written to Kafka by the gateway that got them; Kafka needs no owner.
"""
