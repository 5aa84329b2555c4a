"""This gateway's membership of the group of gateways.

The group's consumer only takes part in rebalances: its partitions are paused at once, and nothing is fetched or
committed. The tokens are read by another consumer (answers/live.py), which keeps its position in the partitions
that stay while a rebalance goes on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import KafkaError

from app.gateway.edge.errors import lasting
from app.gateway.peers.assignor import Division, GatewayAssignor, Member
from app.kafka.clients import KafkaUnusableError, start, stop
from app.settings import Settings

log = logging.getLogger(__name__)

_RETRY_S = 1.0
_POLL_MS = 5000
_SESSION_S = 6.0
"""The shortest session that brokers allow by default: readers wait that long if a gateway dies."""
_PROTOCOL = 2
"""Part of the group's name: gateways that speak another protocol share the partitions in a group of their own."""
_NEVER_MS = 2**31 - 1
"""The consumer is never polled for records, which must not count as a failure."""


class Membership:
    """Calls `assigned` with the owners of all partitions after each rebalance of the group."""

    def __init__(self, settings: Settings, member: Member, assigned: Callable[[Division], Awaitable[None]]) -> None:
        self._settings = settings
        self._member = member
        self._assigned = assigned
        self._division = Division({}, {})
        self._staying: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._staying = asyncio.create_task(lasting("the group of gateways", self._stay), name="group of gateways")

    async def stop(self) -> None:
        """Leave the group, so that the others take over at once."""
        if self._staying is not None:
            self._staying.cancel()
            await asyncio.gather(self._staying, return_exceptions=True)

    async def _stay(self) -> None:
        while True:
            try:
                await self._participate()
            except (KafkaError, KafkaUnusableError, OSError) as error:
                log.warning("the group of gateways is out of reach: %s; retrying", error)
                await asyncio.sleep(_RETRY_S)

    async def _participate(self) -> None:
        session_ms = int(min(self._settings.session_timeout_s, _SESSION_S) * 1000)
        assignor = GatewayAssignor(self._member, self._learn)
        member = AIOKafkaConsumer(
            **self._settings.cluster.options(),
            group_id=f"{self._settings.group}-gateways-{_PROTOCOL}",
            enable_auto_commit=False,
            auto_offset_reset="latest",
            partition_assignment_strategy=(assignor,),
            session_timeout_ms=session_ms,
            heartbeat_interval_ms=max(300, session_ms // 10),
            max_poll_interval_ms=_NEVER_MS,
        )
        member.subscribe([self._settings.topic("tokens")], listener=_Rebalances(member, self._apply_division))
        await start(member)
        try:
            while True:
                await member.getmany(timeout_ms=_POLL_MS)  # raises what has ended the membership
        finally:
            await stop(member)

    def _learn(self, division: Division) -> None:
        self._division = division

    async def _apply_division(self) -> None:
        await self._assigned(self._division)


class _Rebalances(ConsumerRebalanceListener):
    def __init__(self, member: AIOKafkaConsumer, apply_division: Callable[[], Awaitable[None]]) -> None:
        self._member = member
        self._apply_division = apply_division

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        """This gateway serves them until the next assignment."""

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self._member.pause(*assigned)
        await self._apply_division()
