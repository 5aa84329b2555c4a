"""Records for topics of others that go with the events of one answer, at the same moment.

Events are in no transaction, so nor are these. A former owner may have died before it sent some: the next owner sends
those of all events of the log again, under its own epoch, before its first own one. All of them are delivered before
the request is committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec
from aiokafka.structs import RecordMetadata

from app.delivery.accepted import RequestKey
from app.delivery.record import Outgoing
from app.delivery.resume.tokens import TokenLog
from app.wire.event import TokenEvent

RecordsOf = Callable[[TokenEvent], Sequence[Outgoing]]
"""The records that go with an event, which has its epoch and its time."""


class Beside:
    """`owed` are the events of a former owner."""

    def __init__(self, tokens: TokenLog, key: RequestKey, records_of: RecordsOf, owed: Sequence[TokenEvent]) -> None:
        self._tokens = tokens
        self._key = key
        self._records_of = records_of
        self._owed = tuple(owed)

    async def send(self, now: int, *events: TokenEvent) -> list[asyncio.Future[RecordMetadata]]:
        """Hand over what goes with these events, written at `now`, and with those that are owed."""
        owed, self._owed = (*self._owed, *events), ()

        def under(epoch: int) -> list[Outgoing]:
            stamped = (msgspec.structs.replace(one, epoch=epoch, timestamp=one.timestamp or now) for one in owed)
            return [record for one in stamped for record in self._records_of(one)]

        return await self._tokens.send_beside(under, self._key)
