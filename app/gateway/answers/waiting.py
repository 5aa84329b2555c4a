"""What of a user waits: requests for later, and answers that sleep. Read from the topic `waits` when somebody asks.

The topic is compacted, so a partition has a record for each answer that has slept. Where the policy has no `[waits]`,
nothing is read.
"""

from __future__ import annotations

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from app.gateway.callers.fair_queue import FairQueue
from app.gateway.edge.errors import ApiError
from app.kafka.clients import KafkaUnusableError, consumer, start, stop
from app.policy.file import Policy
from app.search.kept_rows import up_to_end
from app.settings import Settings
from app.settings.kafka import TopicName
from app.wire.error import ErrorCode, WireError
from app.wire.ids import partition_for
from app.wire.waits import WaitRecord, read_open
from tables.records import key_parts

_AT_ONCE = 4


class WaitingAnswers:
    def __init__(self, settings: Settings, policy: Policy, partitions: int) -> None:
        self._settings, self._partitions = settings, partitions
        self._turns = FairQueue(_AT_ONCE, "searches of what waits")
        self.use(policy)

    def use(self, policy: Policy) -> None:
        self._is_on = policy.waits is not None

    async def of_user(self, user_id: str) -> list[WaitRecord]:
        """What sleeps or wakes, the next to be woken first. Raises `ApiError`."""
        if not self._is_on:
            return []
        async with self._turns.turn(user_id):
            try:
                return sorted(await self._read(user_id), key=lambda one: one.until)
            except (KafkaError, KafkaUnusableError):
                raise ApiError(ErrorCode.UNAVAILABLE, "Kafka cannot be read now", retry_after_s=1) from None

    async def of_request(self, user_id: str, request_id: str) -> WaitRecord | None:
        found = await self.of_user(user_id)
        return next((one for one in found if one.request_id == request_id and one.state == "asleep"), None)

    async def _read(self, user_id: str) -> list[WaitRecord]:
        newest: dict[bytes, WaitRecord] = {}
        at = TopicPartition(self._settings.topic(TopicName.WAITS), partition_for(user_id, self._partitions))
        records = consumer(self._settings.cluster)
        await start(records)
        try:
            records.assign([at])
            await records.seek_to_beginning(at)
            async for record in up_to_end(records, [at]):
                if record.key is None or key_parts(record.key)[:1] != (user_id,):
                    continue
                newest.pop(record.key, None)
                try:
                    state = read_open(record.value, record.headers)
                except WireError:
                    continue  # not written by a worker
                if state is not None:
                    newest[record.key] = state
        finally:
            await stop(records)
        return list(newest.values())
