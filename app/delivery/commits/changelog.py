"""Bring a partition's store up to date with its changelogs.

Each table has a compacted topic `<app>-<table>-changelog`, partitioned like `requests`. Only a partition's owner writes
to it, in the transaction that commits a request. Once a former owner is fenced, the end of the log no longer moves, so
"restored" is an exact position. The end is compared with the consumer's position and not with the offsets of records,
because the last offsets of a log are transaction markers, which a consumer never returns.

A store that is ahead of its changelog, or that holds another record than the log at its newest offset, was filled from
a log that has been deleted and created again. It is wiped and restored.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.admin import NewTopic
from aiokafka.errors import NoError, TopicAlreadyExistsError, for_code

from app.kafka.clients import admin_of
from app.kafka.reading import check_readable
from app.kafka.topic_config import Bound, Rule, enforce
from app.settings import Settings
from app.settings.kafka import COMPACTION_LAG_S
from app.wire.record_size import MAX_RECORD_BYTES
from tables.records import RowChange, Table
from tables.store import Fingerprint, PartitionStore

log = logging.getLogger(__name__)

_PROGRESS_EVERY_S = 2.0
_AT_ONCE = 1000
TOMBSTONES_MS = 24 * 3600 * 1000


def changelog_topic(settings: Settings, table: Table) -> str:
    return settings.topic(f"{settings.app_id}-{table.value}-changelog")


def changelogs(settings: Settings, partition: int) -> Mapping[TopicPartition, Table]:
    return MappingProxyType({TopicPartition(changelog_topic(settings, t), partition): t for t in Table})


def changelog_config(settings: Settings) -> Mapping[str, str]:
    return MappingProxyType({
        "cleanup.policy": "compact",
        # Deleted rows, and with them erased text, leave the log within this time plus one run of the cleaner.
        "max.compaction.lag.ms": str(COMPACTION_LAG_S * 1000),
        # A store that was offline for less than this sees every deletion.
        "delete.retention.ms": str(TOMBSTONES_MS),
        # As durable as `turns`, whose records are committed together with the rows.
        "min.insync.replicas": str(max(1, settings.replication - 1)),
    })  # fmt: skip


def _rules(settings: Settings, replicas: int) -> tuple[Rule, ...]:
    config = changelog_config(settings)
    durable = str(min(int(config["min.insync.replicas"]), max(1, replicas - 1)))
    return (
        Rule("cleanup.policy", config["cleanup.policy"], Bound.INCLUDES),
        Rule("max.compaction.lag.ms", config["max.compaction.lag.ms"], Bound.AT_MOST),
        Rule("delete.retention.ms", config["delete.retention.ms"], Bound.AT_LEAST),
        Rule("min.insync.replicas", durable, Bound.AT_LEAST),
        Rule("max.message.bytes", str(MAX_RECORD_BYTES), Bound.AT_LEAST),
    )


async def create_changelogs(settings: Settings) -> None:
    """Create the changelog topics that are missing and check the others. Several workers may call it at once.

    Raises:
        KafkaError: the broker is unreachable, or it refused to create a topic.
        TopicConfigError: a topic has a wrong configuration that may not be changed.
    """
    async with admin_of(settings.cluster) as admin:
        names = [changelog_topic(settings, table) for table in Table]
        there = set(await admin.list_topics())
        missing = [
            NewTopic(name, settings.partitions, settings.replication, topic_configs=dict(changelog_config(settings)))
            for name in names
            if name not in there
        ]
        if missing:
            for name, code, *_ in (await admin.create_topics(missing)).topic_errors:
                if code not in (NoError.errno, TopicAlreadyExistsError.errno):
                    raise for_code(code)(name)
        partitions = {topic["topic"]: topic["partitions"] for topic in await admin.describe_topics()}
        replicas = {name: len(partitions[name][0]["replicas"]) for name in names if partitions.get(name)}
        await enforce(admin, {name: _rules(settings, count) for name, count in replicas.items()})


async def restore(reader: AIOKafkaConsumer, store: PartitionStore, logs: Mapping[TopicPartition, Table]) -> int:
    """Apply what the store has not seen, up to the current end of the logs. Returns the number of records.

    `reader` is started, read_committed and in no group. Its assignment is replaced.
    """
    reader.assign(list(logs))
    ends: dict[TopicPartition, int] = await reader.end_offsets(list(logs))
    starts: dict[TopicPartition, int] = await reader.beginning_offsets(list(logs))
    if any(store.offset(table) is not None and (store.offset(table) or 0) >= ends[tp] for tp, table in logs.items()):
        log.warning("%s is ahead of its changelog, which was created anew; the store is wiped and restored", store.path)
        store.wipe()
    for tp, table in logs.items():
        if store.prints(table) and not await _is_same_log(reader, tp, store.prints(table), logs, ends[tp]):
            log.warning("%s[%s] is not the log that filled %s, which is wiped and restored", *tp, store.path)
            store.wipe()
            break
    for tp, table in logs.items():
        applied = store.offset(table)
        reader.seek(tp, starts[tp] if applied is None else max(starts[tp], applied + 1))
    return await _apply_until(reader, store, logs, ends)


async def _is_same_log(
    reader: AIOKafkaConsumer,
    tp: TopicPartition,
    prints: Sequence[Fingerprint],
    logs: Iterable[TopicPartition],
    end: int,
) -> bool:
    """Whether the log holds one of these records, and no other record at its offset.

    Compaction may have removed some of them, but rarely all. If it has removed all, the answer is unknown, and
    restoring is safe.
    """
    wanted = {one.offset: one for one in prints}
    last = min(end, prints[-1].offset + 1)
    reader.pause(*(other for other in logs if other != tp))
    reader.resume(tp)
    reader.seek(tp, prints[0].offset)
    matches = 0
    while await reader.position(tp) < last:
        for record in (await reader.getmany(tp, timeout_ms=200)).get(tp, ()):
            expected = wanted.get(record.offset)
            if expected is not None and record.key is not None:
                if expected != Fingerprint.of(record.offset, record.key, record.value):
                    return False
                matches += 1
    return matches > 0


async def _apply_until(
    reader: AIOKafkaConsumer,
    store: PartitionStore,
    logs: Mapping[TopicPartition, Table],
    ends: Mapping[TopicPartition, int],
) -> int:
    count, logged_at = 0, time.monotonic()
    for tp, table in logs.items():
        reader.pause(*(other for other in logs if other != tp))
        reader.resume(tp)
        while await reader.position(tp) < ends[tp]:
            # A consumer holds thousands of records; applying them takes as long as a step of the event loop may.
            batches: dict[TopicPartition, list[ConsumerRecord]] = await reader.getmany(
                tp, timeout_ms=200, max_records=_AT_ONCE
            )
            for records in batches.values():
                check_readable(records)
                apply_records(store, table, records)
                count += len(records)
            if time.monotonic() - logged_at > _PROGRESS_EVERY_S:
                logged_at = time.monotonic()
                left = ends[tp] - await reader.position(tp)
                log.info("restoring %s partition %s: %s records applied, %s offsets left", *tp, count, left)
        # Set it even if nothing was left: the log may end with markers after its last record.
        store.apply((), {table: ends[tp] - 1} if ends[tp] else {}, now_ms=time.time_ns() // 1_000_000)
    return count


def apply_records(store: PartitionStore, table: Table, records: list[ConsumerRecord]) -> None:
    keyed = [record for record in records if record.key is not None]
    changes = [RowChange(table, record.key, record.value) for record in keyed]
    newest = keyed[-1] if keyed else None
    prints = {} if newest is None else {table: Fingerprint.of(newest.offset, newest.key, newest.value)}
    store.apply(changes, {table: records[-1].offset}, now_ms=time.time_ns() // 1_000_000, prints=prints)
