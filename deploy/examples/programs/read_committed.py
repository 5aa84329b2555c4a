"""`App` in place of `faust.App`, for topics that are written in transactions, as Parley's are.

What Faust up to 0.15.3 does with them: `at_least_once` reads what was taken back, too, and commits one record every
`broker_commit_interval`; with two records that it does not see at the beginning of a partition, and always with
`exactly_once`, it never commits again. It expects each offset to be that of a record. Here a record is committed when
none before it is unfinished.
"""

from typing import Any

import faust
from faust.transport.drivers import aiokafka as driver
from faust.types import TP


class _Thread(driver.AIOKafkaConsumerThread):
    def _create_worker_consumer(self, transport: Any) -> Any:
        consumer = super()._create_worker_consumer(transport)
        consumer._isolation_level = "read_committed"  # noqa: SLF001 - Faust has no setting for it
        return consumer

    def topic_partitions(self, topic: str) -> int | None:
        return super().topic_partitions(topic) or None  # none: a new topic of which it has not heard yet


class _Consumer(driver.Consumer):
    def _new_consumer_thread(self) -> Any:
        return _Thread(self, loop=self.loop, beacon=self.beacon)

    async def _add_gap(self, tp: TP, offset_from: int, offset_to: int) -> None:
        """No offset is waited for."""

    def _new_offset(self, tp: TP) -> int | None:
        acked = self._acked[tp]
        unfinished = [one.offset for one in self._unacked_messages if one.tp == tp]
        done = [offset for offset in acked if not unfinished or offset < min(unfinished)]
        acked[:] = sorted(set(acked) - set(done))
        self._acked_index[tp].difference_update(done)
        return max(done) + 1 if done else None


class App(faust.App):
    def _new_transport(self) -> Any:
        transport = super()._new_transport()
        transport.Consumer = _Consumer
        return transport
