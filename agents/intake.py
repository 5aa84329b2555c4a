"""The agent on topics of others: each of their records becomes one request, or one dead letter.

No member of the group: the group reads Parley's own topics alone, so its subscription is the same with and without an
intake, and workers of which only some have one can run side by side. Each partition of a foreign topic is read by the
owner of one of Parley's partitions (`reader_of`), beside the group, as `usage` reads `turns`. One task reads it
(app/features/foreign/taking.py: why each record counts once). A change of the policy lets that task end behind a
commit; only then another begins.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from aiokafka import TopicPartition

from app.delivery.clients import RETRIABLE_ERRORS, Clients
from app.delivery.commits.handover import Handover
from app.delivery.follower import follow
from app.delivery.ownership import handover_of
from app.delivery.partition import Partition
from app.delivery.record import REQUESTS
from app.features.foreign.taking import POLL_MS, Taking, next_of
from app.features.foreign.written_ahead import WrittenAhead
from app.foreign.formats import IntakeTopic, foreign_topics
from app.foreign.topics import create_foreign_topics
from app.policy.file import Policy
from app.settings import Settings
from app.wire.ids import partition_for

log = logging.getLogger(__name__)

_ROUNDS_AHEAD = 32
_ROUNDS_OF_USERS = 1024
"""What a worker writes ahead, as multiples of the requests that may run in a partition: of topics whose user is a
constant as much as a partition holds; more where users behind one with many requests would wait.
"""
_LAYOUT_S = 30.0
"""How long new partitions of a foreign topic may stay unread."""


@dataclass(slots=True)
class _Reading:
    """A foreign partition that is being read; `stop` lets the task end behind a commit."""

    topic: IntakeTopic
    stop: asyncio.Event
    task: asyncio.Task[None]


class Intake:
    def __init__(self, settings: Settings, clients: Clients, policy: Policy) -> None:
        self._settings = settings
        self._clients = clients
        self._topics = foreign_topics(policy).intakes
        self._changed = asyncio.Event()
        self._counts: dict[str, int] = {}
        self._counted_at = -_LAYOUT_S
        self._counting = asyncio.Lock()
        self._ahead = WrittenAhead(_ROUNDS_AHEAD * settings.max_in_flight, self._handover)
        self._ahead_of_users = WrittenAhead(_ROUNDS_OF_USERS * settings.max_in_flight, self._handover)

    async def _handover(self, number: int) -> Handover:
        return handover_of((await self._clients.committed(number))[REQUESTS])

    async def prepare(self, policy: Policy) -> None:
        """Read the schemas that the policy names, and create the topics that are missing; raises `PolicyError`."""
        foreign_topics(policy)
        await create_foreign_topics(self._settings, policy)

    def use(self, policy: Policy) -> None:
        self._topics = foreign_topics(policy).intakes
        self._counted_at = -_LAYOUT_S
        self._changed.set()
        self._changed = asyncio.Event()

    def places(self) -> list[TopicPartition]:
        return [TopicPartition(topic, number) for topic in self._topics for number in range(self._counts.get(topic, 0))]

    def begin(self, partition: Partition) -> None:
        """Read what falls to this partition until the ownership ends."""
        partition.spawn(self._run(partition))

    async def _run(self, partition: Partition) -> None:
        reading: dict[TopicPartition, _Reading] = {}
        try:
            while True:
                changed, wanted = self._changed, self._topics
                mine = await self._of(partition, wanted)
                for at in [at for at, one in reading.items() if at not in mine or one.topic != wanted[at.topic]]:
                    reading[at].stop.set()
                    await reading.pop(at).task
                for at in sorted(mine - reading.keys()):
                    reading[at] = self._start(partition, at, wanted[at.topic])
                await _first_of(changed, [one.task for one in reading.values()])
        finally:
            for one in reading.values():
                one.task.cancel()
            await asyncio.gather(*(one.task for one in reading.values()), return_exceptions=True)

    async def _of(self, partition: Partition, wanted: Mapping[str, IntakeTopic]) -> set[TopicPartition]:
        """The foreign partitions that the owner of this one reads."""
        if not wanted:
            return set()
        async with self._counting:
            if time.monotonic() - self._counted_at >= _LAYOUT_S or not wanted.keys() <= self._counts.keys():
                try:
                    self._counts = await self._clients.partition_counts([*wanted])
                    self._counted_at = time.monotonic()
                except RETRIABLE_ERRORS as error:
                    log.warning("intake: the partitions of %s are not known: %r", ", ".join(wanted), error)
        here = {at for at in self.places() if reader_of(at, self._settings.partitions) == partition.number}
        return {at for at in here if at.topic in wanted}

    def _start(self, partition: Partition, at: TopicPartition, topic: IntakeTopic) -> _Reading:
        stop = asyncio.Event()
        ahead = self._ahead if topic.rules.has_one_user else self._ahead_of_users
        read = Taking(self._settings, partition, at, topic, stop, ahead).read
        reader = partial(self._clients.foreign_reader, wait_ms=POLL_MS)
        return _Reading(topic, stop, asyncio.create_task(follow(at, reader, partial(next_of, partition, at), read)))


def reader_of(at: TopicPartition, partitions: int) -> int:
    """The partition of Parley whose owner reads this foreign one. Topics of one partition fall to different owners."""
    return (partition_for(at.topic, partitions) + at.partition) % partitions


async def _first_of(changed: asyncio.Event, reading: Sequence[asyncio.Task[None]]) -> None:
    """Wait for a change of the policy, or until the foreign topics may have more partitions. Raises what a reader does
    not get over.
    """
    waiting = asyncio.create_task(changed.wait())
    try:
        done, _ = await asyncio.wait({waiting, *reading}, timeout=_LAYOUT_S, return_when=asyncio.FIRST_COMPLETED)
        for task in done - {waiting}:
            task.result()
    finally:
        waiting.cancel()
