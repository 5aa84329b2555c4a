"""The requests that this process has put on `requests` and that have not ended: a window of them for each user.

What is written waits there, and every worker that takes the partition over reads past it. So who turns a topic of a
million old records into requests writes as many ahead as a user may have (fair_slots.py), and goes on as they
end. What has ended stands in the handover of the partition's owner, who may be another worker. Nothing of this is kept:
a process that starts anew has an empty window.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from aiokafka.structs import RecordMetadata

from app.delivery.commits.handover import Handover
from app.delivery.record import Outgoing
from app.wire.ids import tenant_of
from models.interface.fair_slots import FairSlots, Payers, payers_of

Written = frozenset[tuple[int, Payers]]
"""The users of some requests, and their partitions."""


class WrittenAhead:
    """`most`: of all users together; one alone may have three quarters of it."""

    def __init__(self, most: int, handover: Callable[[int], Awaitable[Handover]]) -> None:
        self._slots = FairSlots(most)
        self._handover = handover
        self._open: dict[int, dict[int, Payers]] = {}
        """By partition and offset."""

    def add(self, requests: Iterable[tuple[Outgoing, RecordMetadata]]) -> Written:
        """They are written."""
        written = set()
        for request, receipt in requests:
            user = (request.key or b"").decode()
            payers = payers_of(tenant_of(user) or "", user)
            self._slots.hold(payers)
            self._open.setdefault(receipt.partition, {})[receipt.offset] = payers
            written.add((receipt.partition, payers))
        return frozenset(written)

    def is_full(self, written: Written) -> bool:
        """Whether one of these users may have no more."""
        return any(self._slots.refused(payers) is not None for _, payers in written)

    async def catch_up(self, written: Written) -> None:
        """Forget what has ended in the partitions of these users. Raises errors of the broker."""
        for number in {number for number, _ in written}:
            handover, written_there = await self._handover(number), self._open[number]
            finished = frozenset(handover.ahead)
            for offset in [one for one in written_there if one < handover.head or one in finished]:
                self._slots.release(written_there.pop(offset))
