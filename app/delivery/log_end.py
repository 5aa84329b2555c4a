"""Where `requests` ends now, by the broker's answer; a consumer's own high watermark may be stale."""

from __future__ import annotations

import logging

from aiokafka import AIOKafkaConsumer, TopicPartition

from app.delivery.clients import TROUBLE, Clients

log = logging.getLogger(__name__)

_LOOK_MS = 500


class LogEnd:
    """One reader for all partitions of a worker, started when it is first needed; calls must not overlap."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._reader: AIOKafkaConsumer | None = None

    async def of(self, at: TopicPartition, read_up_to: int) -> int | None:
        """The end of the log, or `read_up_to` where no record stands behind it; None while the broker is away.

        The last offsets of a log may be transaction markers, which no consumer is ever handed. Records of open and of
        aborted transactions count: what will become of them is not known.
        """
        try:
            if self._reader is None:
                reader = self._clients.end_reader()
                await reader.start()
                self._reader = reader
            end: int = (await self._reader.end_offsets([at]))[at]
            if read_up_to >= end:
                return end
            return end if await self._has_record(self._reader, at, read_up_to, end) else read_up_to
        except TROUBLE as error:
            log.warning("the end of %s[%d] is not known: %r; asked again at the next sweep", *at, error)
            await self.stop()
            return None

    async def _has_record(self, reader: AIOKafkaConsumer, at: TopicPartition, first: int, end: int) -> bool:
        reader.assign([at])
        reader.seek(at, first)
        try:
            while await reader.position(at) < end:
                if await reader.getmany(at, timeout_ms=_LOOK_MS):
                    return True
            return False
        finally:
            reader.assign([])

    async def stop(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            try:
                await reader.stop()
            except TROUBLE as error:
                log.debug("the reader of log ends did not stop cleanly: %r", error)
