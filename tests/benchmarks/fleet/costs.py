"""What the parts of a fleet cost, as far as it was measured. The defaults are those of the run in README.md."""

from __future__ import annotations

import msgspec


class Costs(msgspec.Struct, frozen=True, kw_only=True):
    """Processor times in seconds, memory in bytes. A request has further costs for each of its tokens."""

    worker_request_s: float = 0.0039
    worker_token_s: float = 230e-6
    worker_idle_share: float = 0.01
    """Cores that a worker takes with 8 partitions and no request."""
    partition_idle_share: float = 0.00027
    """Cores that each further partition adds to that."""
    broker_request_s: float = 0.0071
    broker_token_s: float = 274e-6
    """With one reader of the topic, which is Kafka's work for workers and gateways alike."""
    gateway_token_s: float = 188e-6
    gateway_passed_on_s: float = 56e-6
    """What both gateways spend together on a token that one passes on for the other, beside that."""
    gateway_reader_bytes: float = 30 * 1024
    token_record_bytes: float = 250.0
