"""Ids and names: their forms, and what is derived from one: partition, seed and tenant."""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Annotated, TypeGuard

import uuid_utils
from aiokafka.partitioner import murmur2
from msgspec import Meta

SEPARATOR = "/"
"""Between tenant and user in the `user_id` of a tenant's user."""
MAX_NAME_LENGTH = 256
Name = Annotated[str, Meta(max_length=MAX_NAME_LENGTH)]
MAX_USER_LENGTH = 128
MAX_REQUEST_ID_LENGTH = 64
_TOOL_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_REQUEST_ID = re.compile(rf"(?!\.{{1,2}}\Z)[A-Za-z0-9._:-]{{1,{MAX_REQUEST_ID_LENGTH}}}")
REQUEST_ID_FORM = "1-64 of A-Z a-z 0-9 . _ : -, and not . or .."
"""Dots alone would name another resource in a URL."""


def is_request_id(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and _REQUEST_ID.fullmatch(value) is not None


def is_tool_name(value: str) -> bool:
    return _TOOL_NAME.fullmatch(value) is not None


def is_user_id(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and 1 <= len(value) <= MAX_USER_LENGTH and is_text(value)


def is_conversation_id(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and len(value) <= MAX_NAME_LENGTH and is_text(value)


def is_text(value: str) -> bool:
    """Whether it has no lone surrogate: so Python keeps a byte that is not UTF-8."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


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
