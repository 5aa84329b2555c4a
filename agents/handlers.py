"""What delivery calls for the records of a partition: one handler per topic, and what an ownership begins and ends."""

from __future__ import annotations

import logging
from collections.abc import Callable

from agents.containment import Containment
from agents.controls import Controls
from agents.conversations import Conversations
from agents.history import History
from agents.outcomes import reduced
from agents.tool_results import ToolResults
from agents.usage import UsageWindows
from app.delivery.commits.commit import Commit
from app.delivery.escalation import ESCALATING
from app.delivery.inflight import InFlightRequest
from app.delivery.ownership import FencedError
from app.delivery.partition import Partition
from app.delivery.record import CONTROLS, REQUESTS, TURNS, Record
from app.settings import Settings

log = logging.getLogger(__name__)


class Handlers:
    """Implements `app.delivery.partition.Agent`.

    `expect_rebalance` is called for a partition that another worker owns; `broken` ends the worker.
    """

    def __init__(
        self,
        settings: Settings,
        conversations: Conversations,
        controls: Controls,
        history: History,
        usage: UsageWindows,
        tool_results: ToolResults,
        containment: Containment,
        *,
        expect_rebalance: Callable[[Partition, FencedError], None],
        broken: Callable[[BaseException], None],
    ) -> None:
        self._settings = settings
        self._containment = containment
        self._of_topic = {REQUESTS: conversations.handle, CONTROLS: controls.handle, TURNS: history.handle}
        self._conversations = conversations
        self._history = history
        self._usage = usage
        self._tool_results = tool_results
        self._expect_rebalance = expect_rebalance
        self._broken = broken

    def handle(self, partition: Partition, record: Record) -> None:
        try:
            self._of_topic[record.topic](partition, record)
        except ESCALATING:
            raise
        except Exception as error:  # noqa: BLE001 - of this record
            partition.spawn(partition.commit(self.failed(record, error)))

    def has_begun(self, partition: Partition, record: Record) -> bool:
        return self._conversations.has_begun(partition, record)

    async def answer(self, partition: Partition, inflight: InFlightRequest) -> None:
        await self._conversations.answer(partition, inflight)

    def reduced(self, commit: Commit, reason: str) -> Commit:
        return reduced(commit, reason, self._settings)

    def failed(self, record: Record, error: Exception) -> Commit:
        return self._containment.letter(record, error)

    def owned(self, partition: Partition) -> None:
        self._usage.begin(partition)
        self._tool_results.begin(partition)

    def released(self, partition: Partition) -> None:
        self._history.release(partition.number)

    def fenced(self, partition: Partition, error: FencedError) -> None:
        log.warning("%s; its answers continue there", error)
        self._expect_rebalance(partition, error)

    def broken(self, error: BaseException) -> None:
        self._broken(error)
