"""The key of a partition's placeholders: a row of the table `guard`.

Its first owner under a policy that masks draws it and commits it before it is used. All owners therefore write the same
placeholders, no setting has to be shared, and readers of prompts, of Milvus or of outside servers do not have it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from weakref import WeakKeyDictionary

from app.delivery.commits.commit import Commit
from app.delivery.ownership import Ownership
from app.delivery.partition import Partition
from tables.records import GUARD_SECRET, GuardSecret, RowChange, Table, decode_row, encode
from tables.store import PartitionStore

_BYTES = 32
_DRAWING: WeakKeyDictionary[Ownership, asyncio.Lock] = WeakKeyDictionary()


def secret_of(store: PartitionStore) -> bytes | None:
    """None before the first owner that masks."""
    raw = store.get(Table.GUARD, GUARD_SECRET)
    return None if raw is None else decode_row(raw, GuardSecret).secret


async def ensure_secret(partition: Partition, draw: Callable[[int], bytes]) -> bytes:
    """The partition's secret; `draw` gives random bytes. Raises `LostError` if the ownership ends before a new one is
    committed.
    """
    ownership = partition.ownership
    while (known := secret_of(ownership.store)) is None:
        async with _DRAWING.setdefault(ownership, asyncio.Lock()):
            if secret_of(ownership.store) is None:
                secret = encode(GuardSecret(draw(_BYTES)))
                await partition.commit(Commit(None, (RowChange(Table.GUARD, GUARD_SECRET, secret),)), urgent=True)
    return known
