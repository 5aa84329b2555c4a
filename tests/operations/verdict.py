"""What the topics hold after a page, judged as after faults."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition

from app.kafka.clients import admin_of
from app.settings import Settings
from app.wire.codec import decode
from app.wire.erasure import Erasure
from app.wire.ids import partition_for
from app.wire.turn import Turn
from tables.erasures import ErasedUntil, Scope
from tests.faults.records import Fetched, read_topic
from tests.faults.verdict import Verdict, judge_records

_APART = 1000
"""So many partitions lie between those of two sets of topics: their epochs have nothing to do with each other."""


@dataclass(frozen=True)
class _Moved:
    """A record as if it lay in another partition."""

    record: Any
    partition: int

    def __getattr__(self, name: str) -> Any:
        return getattr(self.record, name)


async def verdict_of(settings: Settings, former: Settings | None = None, erased: Collection[str] = ()) -> Verdict:
    """`former`: the topics from which users have moved to those of the settings, with their turns."""
    await _all_committed(settings)
    requests, tokens, turns = [await read_topic(settings, topic) for topic in ("requests", "tokens", "turns")]
    if former is not None:
        requests = [*_spread(await read_topic(former, "requests"), settings), *requests]
        tokens = [*await read_topic(former, "tokens"), *(_Moved(one, one.partition + _APART) for one in tokens)]
    stood_at = dict.fromkeys(erased, math.inf)
    verdict = judge_records(requests, tokens, turns, settings, paced=True, erased=lambda user, _: stood_at.get(user))
    if erased:
        pardon_cut(verdict, turns, await read_topic(settings, "erasures"))
    return verdict


async def _all_committed(settings: Settings) -> None:
    """Readers hear the end of an answer before its turn is committed, on a busy machine a second before."""
    requests = [TopicPartition(settings.topic("requests"), number) for number in range(settings.partitions)]
    records = AIOKafkaConsumer(**settings.cluster.options(), isolation_level="read_committed")
    await records.start()
    try:
        ends = {one: end for one, end in (await records.end_offsets(requests)).items() if end}
    finally:
        await records.stop()
    async with admin_of(settings.cluster) as admin:
        is_open = True
        while is_open:
            committed = await admin.list_consumer_group_offsets(settings.group, partitions=requests)
            is_open = any(committed[one].offset < end for one, end in ends.items())
            await asyncio.sleep(0.1)


def pardon_cut(verdict: Verdict, turns: list[Fetched], erasures: list[Fetched]) -> None:
    """An answer that an erasure of its user or conversation has met leaves an empty turn, whatever its readers have:
    that is right. Right for no other answer: not for one that was asked later, nor for one that was not erased.
    """
    done_at = ErasedUntil()
    for record in erasures:
        one = decode(Erasure, record.value, record.headers)
        done_at.add(Scope(one.user_id, one.conversation_id), one.created_at)
    kept = [decode(Turn, record.value, record.headers) for record in turns]
    met_at = {
        (one.user_id, one.request_id): done_at.at(one.user_id, one.conversation_id)
        for one in kept
        if not (one.prompt or one.answer)
    }
    verdict.turn_differs[:] = [key for key in verdict.turn_differs if verdict.asked_at[key] > met_at.get(key, -1)]


def _spread(records: list[Fetched], settings: Settings) -> list[Fetched]:
    return [_Moved(one, partition_for((one.key or b"").decode(), settings.partitions)) for one in records]
