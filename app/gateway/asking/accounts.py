"""What each event of an answer counts for: limits, figures of tenants, models that are served, metrics."""

from __future__ import annotations

import time
from collections.abc import Collection

from app.gateway.answers.archive import time_of
from app.gateway.answers.live import LiveObserver
from app.gateway.answers.sent import SentRequests
from app.gateway.asking.models import ServedModels
from app.gateway.asking.tenants import TenantLimits
from app.gateway.callers.backlog import Backlog
from app.gateway.edge.metrics import GatewayMetrics
from app.gateway.peers.admission import Admission
from app.gateway.peers.directory import Directory
from app.reader import Update
from app.reader.rule import Key
from app.wire.event import TokenEvent


class Accounts(LiveObserver):
    def __init__(
        self,
        metrics: GatewayMetrics,
        sent: SentRequests,
        directory: Directory,
        backlog: Backlog,
        admission: Admission,
        tenants: TenantLimits,
        models: ServedModels,
    ) -> None:
        self._metrics = metrics
        self._sent = sent
        self._directory = directory
        self._backlog = backlog
        self._admission = admission
        self._tenants = tenants
        self._models = models

    def record_read(self) -> None:
        self._metrics.events.inc()

    def answer_grew(self, update: Update) -> None:
        event, answer = update.event, update.answer
        self._admission.count_tokens(answer.user_id, len(event.tokens or ()))
        if event.is_end:
            self._admission.count_tokens(answer.user_id, _unshown(event, answer.position))
            self._backlog.ended(answer.user_id)
            is_own = self._sent.conversation(answer.user_id, answer.request_id) is not None
            self._tenants.answered(answer.user_id, event.usage, is_counted=is_own)
        if event.model_version:
            self._models.answered(event.model_version)
        if event.index == 0 and event.tokens:
            self.first_token(answer.user_id, answer.request_id)

    def first_token(self, user_id: str, request_id: str) -> None:
        """Measure it for requests of this gateway, whichever gateway has read it."""
        made_at = time_of(request_id)
        if made_at is not None and self._sent.conversation(user_id, request_id) is not None:
            self._metrics.first_token.observe(max(0.0, time.time() - made_at))

    def answer_forgotten(self, key: Key) -> None:
        self._sent.forget(key)

    def assigned(self, partitions: Collection[int]) -> None:
        self._metrics.partitions.set(len(partitions))
        self._directory.wake()


def _unshown(event: TokenEvent, shown: int) -> int:
    """Tokens that were computed and not shown: those of the candidates that were not chosen."""
    return 0 if event.usage is None else max(0, event.usage.completion_tokens - shown)
