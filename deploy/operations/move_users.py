"""Copy what users have to new topics with another number of partitions.

    python deploy/operations/move_users.py --to-prefix chat2- --to-partitions 16

The settings name the old topics. No worker of either set may run, and the new topics must exist and be empty. Copied
are `turns`, conversations, ended requests and erasures, each to the partition that its user has there, with its own
time, so that retention goes on. Turns that an erasure covers stay behind. `audit`, `tokens` and open requests are not
copied. Run it again after a failure only with new topics.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Sequence

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import GroupCoordinatorNotAvailableError

from app.delivery.commits.changelog import changelog_topic, create_changelogs
from app.kafka.clients import consumer, producer, start
from app.kafka.topics import TopicsError, check_topics
from app.settings import Settings, load_settings
from app.wire.codec import decode
from app.wire.ids import partition_for
from app.wire.turn import Turn
from tables.erasures import ErasedUntil, Scope
from tables.records import Erased, Table, decode_row, key_parts

_AT_ONCE = 1000
_COORDINATOR_S = 60.0
_TABLES = (Table.CONVERSATIONS, Table.ENDED, Table.ERASED)


class MoveError(Exception):
    """Nothing can be copied; one line with the remedy."""


async def move(old: Settings, new: Settings) -> None:
    await check_topics(new)
    await _check_idle(old, new)
    await create_changelogs(new)
    reader, writer = consumer(old.cluster), producer(old.cluster)
    await start(reader)
    await start(writer)
    try:
        if await _end(reader, _partitions(new, new.topic("turns"))):
            raise MoveError(f"{new.topic('turns')} has records: copy to new topics, with another --to-prefix")
        erased = ErasedUntil()
        for table in _TABLES:
            rows = await _rows(reader, old, table)
            copies = _Copies(writer, new, changelog_topic(new, table))
            for key, row in rows.items():
                if table is Table.ERASED:
                    scope = Scope.of_key(key)
                    erased.add(scope, decode_row(row.value, Erased).at)
                    await copies.add(row, scope.user_id)
                else:
                    await copies.add(row, key_parts(key)[0])
            await copies.delivered()
            print(f"{changelog_topic(new, table)}: {len(rows)} rows", flush=True)
        copies, copied, left = _Copies(writer, new, new.topic("turns")), 0, 0
        async for turn in _records(reader, _partitions(old, old.topic("turns"))):
            user = turn.key.decode()
            kept = decode(Turn, turn.value, turn.headers)
            if (at := erased.at(user, kept.conversation_id)) and not kept.outlives(at):
                left += 1
                continue
            await copies.add(turn, user)
            copied += 1
        await copies.delivered()
        print(f"{new.topic('turns')}: {copied} turns; {left} erased ones stay behind", flush=True)
    finally:
        await writer.stop()
        await reader.stop()


async def _check_idle(*both: Settings) -> None:
    admin = AIOKafkaAdminClient(**both[0].cluster.options())
    await admin.start()
    try:
        for settings in both:
            name, state = await _group(admin, settings.group)
            if state not in {"Empty", "Dead"}:
                raise MoveError(f"workers of the group {name} run: stop them first")
    finally:
        await admin.close()


async def _group(admin: AIOKafkaAdminClient, group: str) -> tuple[str, str]:
    """Its name and state. The first question about a group makes a new broker create the coordinators' topic."""
    async with asyncio.timeout(_COORDINATOR_S):
        while True:
            try:
                ((_, name, state, *_),) = (await admin.describe_consumer_groups([group]))[0].groups
            except GroupCoordinatorNotAvailableError:
                await asyncio.sleep(0.5)
            else:
                return name, state


async def _rows(reader: AIOKafkaConsumer, settings: Settings, table: Table) -> dict[bytes, ConsumerRecord]:
    """The newest row of each key."""
    rows: dict[bytes, ConsumerRecord] = {}
    async for record in _records(reader, _partitions(settings, changelog_topic(settings, table))):
        if record.value is None:
            rows.pop(record.key, None)
        else:
            rows[record.key] = record
    return rows


async def _records(reader: AIOKafkaConsumer, partitions: Sequence[TopicPartition]) -> AsyncIterator[ConsumerRecord]:
    """All committed records, partition by partition, in the order of their offsets."""
    reader.assign(list(partitions))
    ends = await reader.end_offsets(list(partitions))
    for partition in partitions:
        reader.pause(*partitions)
        reader.resume(partition)
        await reader.seek_to_beginning(partition)
        while await reader.position(partition) < ends[partition]:
            for records in (await reader.getmany(partition, timeout_ms=200)).values():
                for record in records:
                    yield record


async def _end(reader: AIOKafkaConsumer, partitions: Sequence[TopicPartition]) -> int:
    return sum((await reader.end_offsets(list(partitions))).values())


class _Copies:
    """Records on their way to a topic, many at once; those of a partition keep their order."""

    def __init__(self, writer: AIOKafkaProducer, to: Settings, topic: str) -> None:
        self._writer = writer
        self._partitions = to.partitions
        self._topic = topic
        self._on_their_way: list[asyncio.Future[object]] = []

    async def add(self, record: ConsumerRecord, user: str) -> None:
        delivery = await self._writer.send(
            self._topic,
            record.value,
            key=record.key,
            partition=partition_for(user, self._partitions),
            timestamp_ms=record.timestamp,
            headers=list(record.headers),
        )
        self._on_their_way.append(delivery)
        if len(self._on_their_way) >= _AT_ONCE:
            await self.delivered()

    async def delivered(self) -> None:
        await asyncio.gather(*self._on_their_way)
        self._on_their_way.clear()


def _partitions(settings: Settings, topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(settings.partitions)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--to-prefix", required=True, help="PARLEY_TOPIC_PREFIX of the new topics")
    parser.add_argument("--to-partitions", required=True, type=int, help="their PARLEY_PARTITIONS")
    options = parser.parse_args()
    old = load_settings()
    new = old.model_copy(update={"topic_prefix": options.to_prefix, "partitions": options.to_partitions})
    try:
        asyncio.run(move(old, new))
    except (MoveError, TopicsError) as error:
        sys.exit(f"move_users: {error}")
