"""Bringing a partition's store up to date with its changelogs.

Each table has a compacted topic `<app>-<table>-changelog`, partitioned as `requests` is. Only a partition's owner
writes to it, in the transaction that finishes a request; so once a former owner is fenced, the end of the log stands
still and "restored" is a position, not a guess. The end is compared with the reader's position and not with the
offsets of records, since the last offsets of a log are transaction markers, which nobody is ever handed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from types import MappingProxyType

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import NoError, TopicAlreadyExistsError, for_code

from app.settings import Settings
from tables.records import Change, Table
from tables.store import PartitionStore

log = logging.getLogger(__name__)

_PROGRESS_EVERY_S = 2.0


def changelog_topic(settings: Settings, table: Table) -> str:
    return settings.topic(f"{settings.app_id}-{table.value}-changelog")


def changelogs(settings: Settings, partition: int) -> Mapping[TopicPartition, Table]:
    return MappingProxyType({TopicPartition(changelog_topic(settings, t), partition): t for t in Table})


async def create_changelogs(settings: Settings) -> None:
    """Create the changelog topics that are missing; several workers may do so at once.

    Raises:
        KafkaError: the broker is away, or one of the topics could not be made.
    """
    admin = AIOKafkaAdminClient(**settings.cluster.options())
    await admin.start()
    try:
        there = set(await admin.list_topics())
        missing = [
            NewTopic(name, settings.partitions, settings.replication, topic_configs={"cleanup.policy": "compact"})
            for table in Table
            if (name := changelog_topic(settings, table)) not in there
        ]
        if missing:
            for name, code, *_ in (await admin.create_topics(missing)).topic_errors:
                if code not in (NoError.errno, TopicAlreadyExistsError.errno):
                    raise for_code(code)(name)
    finally:
        await admin.close()


async def restore(reader: AIOKafkaConsumer, store: PartitionStore, logs: Mapping[TopicPartition, Table]) -> int:
    """Apply what the store has not seen, up to the logs' ends of now; returns how many records that were.

    `reader` is started, read_committed and without a group; its assignment is replaced.
    """
    reader.assign(list(logs))
    ends: dict[TopicPartition, int] = await reader.end_offsets(list(logs))
    starts: dict[TopicPartition, int] = await reader.beginning_offsets(list(logs))
    if any(store.offset(table) is not None and (store.offset(table) or 0) >= ends[tp] for tp, table in logs.items()):
        log.warning(
            "%s is ahead of its changelog, which must have been made anew; it is wiped and restored", store.path
        )
        store.wipe()
    for tp, table in logs.items():
        applied = store.offset(table)
        reader.seek(tp, starts[tp] if applied is None else max(starts[tp], applied + 1))
    return await _apply_until(reader, store, logs, ends)


async def _apply_until(
    reader: AIOKafkaConsumer,
    store: PartitionStore,
    logs: Mapping[TopicPartition, Table],
    ends: Mapping[TopicPartition, int],
) -> int:
    count, told = 0, time.monotonic()
    for tp, table in logs.items():
        reader.pause(*(other for other in logs if other != tp))
        reader.resume(tp)
        while await reader.position(tp) < ends[tp]:
            batches: dict[TopicPartition, list[ConsumerRecord]] = await reader.getmany(tp, timeout_ms=200)
            for records in batches.values():
                apply_records(store, table, records)
                count += len(records)
            if time.monotonic() - told > _PROGRESS_EVERY_S:
                told = time.monotonic()
                left = ends[tp] - await reader.position(tp)
                log.info("restoring %s partition %s: %s records applied, %s offsets left", *tp, count, left)
        # Also where nothing was left: the log may end in markers behind the last record.
        store.apply((), {table: ends[tp] - 1} if ends[tp] else {}, now_ms=time.time_ns() // 1_000_000)
    return count


def apply_records(store: PartitionStore, table: Table, records: list[ConsumerRecord]) -> None:
    changes = [Change(table, record.key, record.value) for record in records if record.key is not None]
    store.apply(changes, {table: records[-1].offset}, now_ms=time.time_ns() // 1_000_000)
