"""Refuse requests that could not begin in time.

A task reads the worker group's offsets every few seconds, for all partitions at once, so a request causes no extra
reads. Their metadata also has the models that are served.

Whose requests wait for what is in estimate.py: a user is refused for a backlog of their own or of very many users, not
for another's. The estimate does not include earlier requests of the same conversation.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError
from aiokafka.structs import OffsetAndMetadata

from app.delivery.commits.handover import finished_ahead, served
from app.gateway.callers.estimate import Sample, WaitEstimate
from app.gateway.edge.errors import ApiError
from app.kafka.clients import consumer, stop
from app.settings import Settings
from app.wire.error import ErrorCode
from app.wire.ids import partition_for

log = logging.getLogger(__name__)

EVERY_S = 2.0
_LONGEST_RETRY_S = 60.0


class Backlog:
    """Reads the worker group's offsets while the gateway runs. `serve` is called with the names of the models that the
    owners of the partitions serve.
    """

    def __init__(
        self, settings: Settings, partitions: int, serve: Callable[[Iterable[str]], None] = lambda _: None
    ) -> None:
        self._settings = settings
        self._topic = settings.topic("requests")
        self._partitions = [TopicPartition(self._topic, number) for number in range(partitions)]
        self.estimate = WaitEstimate(settings.max_in_flight)
        self._ended: Counter[int] = Counter()
        self._serve = serve
        self._observing: asyncio.Task[None] | None = None
        self._observed = asyncio.Event()

    def start(self) -> None:
        self._observing = asyncio.create_task(self._keep_observing(), name="backlog")

    async def observed(self) -> None:
        """Wait until the offsets were read once, but not for a Kafka that is away."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._observed.wait(), EVERY_S)

    async def stop(self) -> None:
        if self._observing is not None:
            self._observing.cancel()
            await asyncio.wait((self._observing,))

    def ended(self, user_id: str) -> None:
        """An answer of the user has ended."""
        self._ended[self._partition(user_id)] += 1
        self.change(user_id, -1)

    def change(self, user_id: str, requests: int) -> None:
        """That many more requests of the user are open, or fewer if it is negative."""
        self.estimate.users(self._partition(user_id)).change(user_id, requests, time.monotonic())

    def keep(self, partitions: Collection[int]) -> None:
        """This gateway keeps the limits of the users of these partitions, and of no others."""
        self.estimate.keep(partitions)

    def check(self, user_id: str) -> None:
        """Raise `ApiError` if the answer could not begin within `gateway_start_s`.

        `Retry-After` is what the wait has too much, at most `_LONGEST_RETRY_S`; the message names no longer wait.
        """
        most_s = self._settings.gateway_start_s
        wait_s = self.estimate.wait_s(self._partition(user_id), user_id, time.monotonic())
        if not most_s or wait_s <= most_s:
            return
        excess_s = min(wait_s - most_s, _LONGEST_RETRY_S)
        about = "about" if excess_s < _LONGEST_RETRY_S else "more than"
        message = (
            f"the answer could begin in {about} {most_s + excess_s:.0f} s at the earliest, {most_s:g} s are allowed; "
            f"{self.estimate.users(self._partition(user_id)).open(user_id)} requests of this user are open"
        )
        raise ApiError(ErrorCode.OVERLOADED, message, retry_after_s=excess_s)

    def _partition(self, user_id: str) -> int:
        return partition_for(user_id, len(self._partitions))

    async def _keep_observing(self) -> None:
        logged = ""  # the failure that was logged last
        while True:
            admin = AIOKafkaAdminClient(**self._settings.cluster.options())
            ends = consumer(self._settings.cluster)
            try:
                await admin.start()
                await ends.start()
                while True:
                    self.estimate.add(await self._observe(admin, ends))
                    self._observed.set()
                    logged = ""
                    await asyncio.sleep(EVERY_S)
            except (KafkaError, OSError) as error:
                self.estimate.forget()
                if logged != (logged := type(error).__name__):
                    log.warning("cannot read the backlog, so no request is rejected for it: %s", error)
            except Exception:
                # No failure here may stop the gateway: without an estimate, no request is rejected.
                self.estimate.forget()
                log.exception("cannot read the backlog; retrying")
            finally:
                try:
                    await stop(ends)
                finally:
                    await stop(admin)
            await asyncio.sleep(EVERY_S)

    async def _observe(self, admin: AIOKafkaAdminClient, records: AIOKafkaConsumer) -> Sample:
        committed = await admin.list_consumer_group_offsets(self._settings.group, partitions=self._partitions)
        self._serve(served(committed.values()))
        ends = await records.end_offsets(self._partitions)
        firsts = await records.beginning_offsets(self._partitions)
        done = {tp.partition: finished(committed.get(tp), firsts[tp]) for tp in self._partitions}
        last = {tp.partition: end for tp, end in ends.items()}
        return Sample(time.monotonic(), last, done, Counter(self._ended))


def finished(committed: OffsetAndMetadata | None, first: int) -> int:
    """The offset that a partition would have if everything finished stood before it.

    One long answer holds the committed offset back; its metadata counts what has finished ahead.
    """
    if committed is None or committed.offset < first:
        return first
    return committed.offset + finished_ahead(committed.metadata or "")
