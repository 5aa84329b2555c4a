"""Where `requests` ends now, according to the broker; a consumer's cached high watermark may be stale."""

from __future__ import annotations

import logging

from aiokafka import AIOKafkaConsumer, TopicPartition

from app.delivery.clients import RETRIABLE_ERRORS, Clients, stop_client
from app.kafka.clients import stop

log = logging.getLogger(__name__)

_POLL_MS = 500


class LogEnd:
    """One consumer for all partitions of a worker, started on first use. Calls must not overlap."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._reader: AIOKafkaConsumer | None = None

    async def of(self, at: TopicPartition, read_up_to: int) -> int | None:
        """The end of the log, or `read_up_to` if no record follows it; None if the broker is unreachable.

        The last offsets of a log may be transaction markers, which a consumer never returns. Records of open and of
        aborted transactions count, because their outcome is not known here.
        """
        try:
            if self._reader is None:
                self._reader = await self._started()
            end: int = (await self._reader.end_offsets([at]))[at]
            if read_up_to >= end:
                return end
            return end if await self._has_record(self._reader, at, read_up_to, end) else read_up_to
        except RETRIABLE_ERRORS as error:
            log.warning("cannot find the end of %s[%d]: %r; retrying at the next sweep", *at, error)
            await self.stop()
            return None

    async def _started(self) -> AIOKafkaConsumer:
        reader = self._clients.end_reader()
        try:
            await reader.start()
        except BaseException:
            await stop_client(reader)
            raise
        return reader

    async def _has_record(self, reader: AIOKafkaConsumer, at: TopicPartition, first: int, end: int) -> bool:
        reader.assign([at])
        reader.seek(at, first)
        try:
            while await reader.position(at) < end:
                if await reader.getmany(at, timeout_ms=_POLL_MS):
                    return True
            return False
        finally:
            reader.assign([])

    async def stop(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            try:
                await stop(reader)
            except RETRIABLE_ERRORS as error:
                log.debug("the consumer that finds log ends did not stop cleanly: %r", error)
