"""Request ids, and what is derived from an id: partition, seed and tenant."""

from __future__ import annotations

from hashlib import blake2b

import uuid_utils
from aiokafka.partitioner import murmur2

SEPARATOR = "/"
"""Between tenant and user in the `user_id` of a tenant's user."""


def new_request_id() -> str:
    """A UUIDv7: unique, and sortable by time."""
    return str(uuid_utils.uuid7())


def partition_for(user_id: str, partitions: int) -> int:
    """The partition that Kafka's own producers choose for this key (murmur2), in any language."""
    return (murmur2(user_id.encode()) & 0x7FFFFFFF) % partitions


def seed_for(request_id: str) -> int:
    """The seed of a request that names none: the same request gets the same answer on every machine."""
    return int.from_bytes(blake2b(request_id.encode(), digest_size=8).digest()) >> 1


def tenant_of(user_id: str) -> str | None:
    """The tenant in a `user_id`; None if it has none."""
    tenant, separator, _ = user_id.partition(SEPARATOR)
    return tenant if separator and tenant else None


def tenant_or_user(user_id: str) -> str:
    """Who shares with others: a user without a tenant counts as one of its own, which no tenant's name can be."""
    return tenant_of(user_id) or f"{SEPARATOR}{user_id}"
