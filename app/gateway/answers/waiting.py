"""What of a user waits: requests for later, and answers that sleep. Read from the topic `waits` when somebody asks.

The topic is compacted, so a partition has a record for each answer that has slept. Where the policy has no `[waits]`,
nothing is read.
"""

from __future__ import annotations

from contextlib import suppress

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from app.gateway.callers.fair_queue import FairQueue
from app.gateway.edge.errors import ApiError
from app.kafka.clients import KafkaUnusableError, consumer, start, stop
from app.policy.file import Policy
from app.search.kept_rows import up_to_end
from app.settings import Settings
from app.settings.kafka import TopicName
from app.wire.codec import decode
from app.wire.error import ErrorCode, WireError
from app.wire.ids import partition_for
from app.wire.waits import WaitRecord
from tables.records import key, prefix_of

_AT_ONCE = 4


class WaitingAnswers:
    def __init__(self, settings: Settings, policy: Policy, partitions: int) -> None:
        self._settings, self._partitions = settings, partitions
        self._turns = FairQueue(_AT_ONCE, "searches of what waits")
        self.use(policy)

    def use(self, policy: Policy) -> None:
        self.is_on = policy.waits is not None

    async def of_user(self, user_id: str) -> list[WaitRecord]:
        """What sleeps or wakes, the next to be woken first. Raises `ApiError`."""
        if not self.is_on:
            return []
        found = await self._read(user_id)
        return sorted((one for one in found.values() if one.state != "ended"), key=lambda one: one.until)

    async def newest(self, user_id: str, request_id: str) -> WaitRecord | None:
        """The newest record of an answer, also of one that has ended. Raises `ApiError`."""
        return (await self._read(user_id)).get(key(user_id, request_id)) if self.is_on else None

    async def of_request(self, user_id: str, request_id: str) -> WaitRecord | None:
        found = await self.of_user(user_id)
        return next((one for one in found if one.request_id == request_id and one.state == "asleep"), None)

    async def _read(self, user_id: str) -> dict[bytes, WaitRecord]:
        async with self._turns.turn(user_id):
            try:
                return await self._newest(user_id)
            except (KafkaError, KafkaUnusableError):
                raise ApiError(ErrorCode.UNAVAILABLE, "Kafka cannot be read now", retry_after_s=1) from None

    async def _newest(self, user_id: str) -> dict[bytes, WaitRecord]:
        """By the keys of the records."""
        begins = prefix_of(user_id)
        newest: dict[bytes, WaitRecord] = {}
        at = TopicPartition(self._settings.topic(TopicName.WAITS), partition_for(user_id, self._partitions))
        records = consumer(self._settings.cluster)
        await start(records)
        try:
            records.assign([at])
            await records.seek_to_beginning(at)
            async for record in up_to_end(records, [at]):
                if record.key is None or not record.key.startswith(begins):
                    continue
                newest.pop(record.key, None)
                if record.value is None:
                    continue
                with suppress(WireError):  # not written by a worker
                    newest[record.key] = decode(WaitRecord, record.value, record.headers)
        finally:
            await stop(records)
        return newest
