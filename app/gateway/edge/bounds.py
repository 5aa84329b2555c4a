"""What a gateway holds at most, and how long it bears a silent reader.

These are no settings: each is far above what one caller needs, and all together stay below what ends the process.
"""

from __future__ import annotations

from app.wire.request import MAX_MESSAGES

STREAMS_OF_USER = 2000
SOCKETS_OF_KEY = 500
FOLLOWED_BY_KEY = 5000
"""Answers that the WebSockets of one key follow, whichever users a tenant's key names."""
ERASURES_PER_MIN = 10
"""Of one user: each reads and writes all partitions."""
CONVERSATION_ERASURES_PER_MIN = 20
CONVERSATION_ERASURES_PER_DAY = 1000
"""Of one user, who may tidy up a list of them. Each leaves a mark for as long as `turns` is kept."""
STALL_S = 30.0
"""A reader that accepts no data for this long is disconnected."""

HELD_EVENTS = 200_000
"""Token events in memory; older answers are read from the log."""
HELD_BYTES = 256 * 1024 * 1024
ASKED_BYTES = 32 * 1024 * 1024
"""Of requests in memory whose responses may be retrieved; others are read from `requests`."""
APPROVALS_BYTES = 64 * 1024 * 1024
"""Of calls that wait for an approval, in memory; beyond, the newest are not listed."""
BODIES_BYTES = 64 * 1024 * 1024
"""Of requests that are being transferred."""
REPLIES_BYTES = 64 * 1024 * 1024
"""Of large replies, and of large pieces of streams, that are being transferred."""
MAX_ITEMS = 4 * MAX_MESSAGES
"""Of `input` of the Responses API: a message of the assistant may be an item for its text and one for each call."""
SCAN_RECORDS = 200_000
"""Records of a partition that are searched for an older answer."""

CONNECTIONS = 10_000
CONNECTIONS_OF_ADDRESS = CONNECTIONS // 4
"""From one address; of IPv6 from one /64, which is what one customer has."""
