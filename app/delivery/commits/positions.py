"""The time up to which every request of a partition has been answered.

A sweep deletes rows that no request may need any more. It must trust neither a consumer's position, which is stale
during a rebalance, nor a wall clock. The log replaces both: now and then the owner notes (the broker's time, the end of
`requests`). Once every request before a noted end is finished, all remaining requests were appended after the noted
time.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass, field

from aiokafka import AIOKafkaConsumer, TopicPartition

from app.delivery.clients import RETRIABLE_ERRORS, Clients, start_client, stop_client

log = logging.getLogger(__name__)

_POLL_MS = 500
_MOST_NOTES = 64


@dataclass(slots=True)
class Watermark:
    """`at` is Unix milliseconds of the broker's clock; None until the first noted end has been reached."""

    at: int | None = None
    _notes: deque[tuple[int, int]] = field(default_factory=deque)

    def note(self, now: int, end: int) -> None:
        """The log ended at the offset `end` at the time `now`, or a moment later."""
        if len(self._notes) < _MOST_NOTES:
            self._notes.append((now, end))

    def advance(self, head: int) -> int | None:
        """All requests before the offset `head` are finished. Returns the new watermark."""
        while self._notes and self._notes[0][1] <= head:
            self.at = self._notes.popleft()[0]
        return self.at


class LogEnd:
    """Where `requests` ends now, according to the broker; a consumer's cached high watermark may be stale.

    One consumer for all partitions of a worker, started on first use. Calls must not overlap.
    """

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
                reader = self._clients.end_reader()
                await start_client(reader)
                self._reader = reader
            end: int = (await self._reader.end_offsets([at]))[at]
            if read_up_to >= end:
                return end
            return end if await self._has_record(self._reader, at, read_up_to, end) else read_up_to
        except RETRIABLE_ERRORS as error:
            log.warning("cannot find the end of %s[%d]: %r; retrying at the next sweep", *at, error)
            await self.stop()
            return None

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
            await stop_client(reader)
