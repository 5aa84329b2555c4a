"""Standbys: warm copies of stores whose partitions another worker owns, kept up to date from the changelogs.

When the owner is lost, the group's assignor gives the partition to a worker with a standby of it, which then only has
to restore the last moments. A standby reads committed records only, so like an owner's store it always equals a prefix
of the changelog.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable

from app.delivery.clients import RETRIABLE_ERRORS, stop_client
from app.delivery.commits.changelog import changelogs, restore
from app.delivery.ownership import PartitionContext
from app.delivery.taking_over import open_store
from tables.store_errors import StoreError, StoreLockedError

log = logging.getLogger(__name__)

_FOLLOW_S = 1.0
_REST_S = 60.0


class Standbys:
    """The partitions that this worker follows."""

    def __init__(self) -> None:
        self._following: dict[int, asyncio.Task[None]] = {}

    async def keep(self, numbers: Collection[int]) -> None:
        """Stop following all other partitions; their stores are closed when this returns."""
        ended = [self._following.pop(number) for number in list(self._following) if number not in numbers]
        for task in ended:
            task.cancel()
        await asyncio.gather(*ended, return_exceptions=True)

    def follow(self, contexts: Iterable[PartitionContext]) -> None:
        """Follow these partitions as well."""
        for context in contexts:
            if context.number not in self._following:
                self._following[context.number] = asyncio.create_task(
                    _follow(context), name=f"standby-{context.number}"
                )


async def _follow(context: PartitionContext) -> None:
    while True:
        try:
            await _copy(context)
        except (*RETRIABLE_ERRORS, StoreLockedError) as error:
            log.warning("standby of partition %s: %r; retrying", context.number, error)
            await asyncio.sleep(_FOLLOW_S)
        except StoreError as error:
            log.warning("standby of partition %s: %s; trying again in %g s", context.number, error, _REST_S)
            await asyncio.sleep(_REST_S)


async def _copy(context: PartitionContext) -> None:
    logs = changelogs(context.settings, context.number)
    store = await open_store(context)
    reader = context.clients.log_reader()
    try:
        await reader.start()
        while True:
            copied = await restore(reader, store, logs)
            if copied:
                log.debug("standby of partition %s: %s records", context.number, copied)
            await asyncio.sleep(_FOLLOW_S)
    finally:
        store.close()
        await stop_client(reader)
