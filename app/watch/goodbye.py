"""LeaveGroup for members that cannot say it any more."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from typing import Never

from aiokafka.client import AIOKafkaClient, CoordinationType
from aiokafka.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    KafkaConnectionError,
    KafkaError,
    NotCoordinatorError,
    UnknownMemberIdError,
)
from aiokafka.protocol.group import LeaveGroupRequest

from app.kafka.cluster import Cluster

_KEEP_S = 10.0
_TRY_S = 2.0
_AGAIN_S = 0.1
_AWAY_S = 1.0
_AWAY = (KafkaError, OSError, TimeoutError)
_ELSEWHERE = frozenset(
    error.errno for error in (CoordinatorLoadInProgressError, CoordinatorNotAvailableError, NotCoordinatorError)
)


class LeaveOutcome(StrEnum):
    """What became of a leave, as words of a log line."""

    LEFT = "the group goes on without it"
    UNKNOWN = "the group did not know it any more"
    REFUSED = "Kafka refuses it"
    LATE = "Kafka did not answer within the session"


class Goodbye:
    """A connection to the coordinator of `group`, opened and logged in before it is needed.

    Whatever fails drops the client, and the next try begins at the addresses of the settings.
    """

    def __init__(self, cluster: Cluster, group: str) -> None:
        self._cluster = cluster
        self._group = group
        self._opening = asyncio.Lock()
        self._client: AIOKafkaClient | None = None
        self._coordinator: int | None = None
        """As `_client` has found it."""

    async def keep_ready(self, tell: Callable[[bool], None]) -> Never:
        """Look for the coordinator again and again: it may move, and idle connections are closed."""
        while True:
            ready = False
            with suppress(*_AWAY):
                async with asyncio.timeout(_KEEP_S):
                    await self._find()
                    ready = True
            if not ready:
                await self.close()
            tell(ready)
            await asyncio.sleep(_KEEP_S if ready else _AWAY_S)

    async def leave(self, member: str, within_s: float) -> LeaveOutcome:
        """Leave for this member id, as often as it takes within this time."""
        until, is_asked = time.monotonic() + within_s, False
        while True:
            code: int | None = None
            with suppress(*_AWAY):
                async with asyncio.timeout(_TRY_S):
                    code = await self._ask(member)
            if code == 0 or (code == UnknownMemberIdError.errno and is_asked):  # by a try whose answer was late
                return LeaveOutcome.LEFT
            if code == UnknownMemberIdError.errno:
                return LeaveOutcome.UNKNOWN
            if code is not None and code not in _ELSEWHERE:
                return LeaveOutcome.REFUSED
            if time.monotonic() + _AGAIN_S >= until:
                return LeaveOutcome.LATE
            self._coordinator = None
            if code is None:
                is_asked = True
                await self.close()
            await asyncio.sleep(_AGAIN_S)

    async def close(self) -> None:
        client, self._client, self._coordinator = self._client, None, None
        if client is not None:
            with suppress(*_AWAY):
                await client.close()

    async def _ask(self, member: str) -> int:
        """The error code of the coordinator's answer."""
        client, node = self._client, self._coordinator
        if client is None or node is None:
            client, node = await self._find()
        response = await client.send(node, LeaveGroupRequest(self._group, member))
        return int(response.error_code)

    async def _find(self) -> tuple[AIOKafkaClient, int]:
        async with self._opening:  # a sidecar leaves for several workers at once
            client = await self._open()
        node: int = await client.coordinator_lookup(CoordinationType.GROUP, self._group)
        if not await client.ready(node):
            raise KafkaConnectionError(f"the coordinator {node} does not answer")
        if self._client is client:
            self._coordinator = node
        return client, node

    async def _open(self) -> AIOKafkaClient:
        if (client := self._client) is None:
            client = AIOKafkaClient(**self._cluster.options(), request_timeout_ms=int(_KEEP_S * 1000))
            try:
                await client.bootstrap()
            except BaseException:
                await client.close()
                raise
            self._client = client
        return client
