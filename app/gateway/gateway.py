"""The parts of one gateway, started and stopped together."""

from __future__ import annotations

import time
from collections import Counter

from starlette.requests import Request as HttpRequest

from app.gateway.access import Access
from app.gateway.archive import Archive, time_of
from app.gateway.buckets import Buckets
from app.gateway.errors import ApiError
from app.gateway.follow import Follower
from app.gateway.live import LiveAnswers
from app.gateway.metrics import Metrics
from app.gateway.outbox import Outbox
from app.gateway.searching import Searching
from app.kafka_clients import partitions_of
from app.reader import Update
from app.settings import Settings
from app.topics import TopicName
from app.wire import ErrorCode

_MOST_MODELS = 100


class Gateway:
    def __init__(self, settings: Settings, access: Access, partitions: int) -> None:
        self.settings = settings
        self.access = access
        self.metrics = Metrics()
        cluster, held = settings.cluster, settings.gateway_held_events
        self.live = LiveAnswers(cluster, settings.topic("tokens"), partitions, held)
        self.outbox = Outbox(settings)
        self.archive = Archive(settings, self.live, partitions, self.metrics)
        self.follower = Follower(self.live, self.archive, self.outbox, settings.gateway_wait_s)
        self.searching = Searching(settings)
        self.requests = Buckets(settings.gateway_requests_per_min, "requests")
        self.lookups = Buckets(settings.gateway_requests_per_min, "look-ups")
        self.tokens = Buckets(settings.gateway_tokens_per_min, "tokens")
        self.models: dict[str, None] = dict.fromkeys(settings.models)
        self._streams: Counter[str] = Counter()
        self.live.on_update = self._seen
        self.live.on_forget = self.outbox.forget

    async def start(self) -> None:
        await self.live.start()
        await self.outbox.start()

    async def stop(self) -> None:
        await self.live.stop()
        await self.outbox.stop()
        await self.searching.stop()

    def admit(self, user_id: str) -> None:
        """Let one request of the user in, or raise `ApiError`."""
        self.tokens.require(user_id)
        self.requests.require(user_id)

    def open_stream(self, user_id: str) -> None:
        if self._streams[user_id] >= self.settings.gateway_streams:
            raise ApiError(
                ErrorCode.RATE_LIMITED, f"{self._streams[user_id]} streams are open already", retry_after_s=5
            )
        self._streams[user_id] += 1
        self.metrics.streams.inc()

    def close_stream(self, user_id: str) -> None:
        self.metrics.streams.dec()
        self._streams[user_id] -= 1
        if not self._streams[user_id]:
            del self._streams[user_id]

    def _seen(self, update: Update) -> None:
        event, answer = update.event, update.answer
        self.tokens.spend(answer.user_id, len(event.tokens or ()))
        if event.model_version and len(self.models) < _MOST_MODELS:
            self.models.setdefault(event.model_version)
        if event.index == 0 and event.tokens and self.outbox.sent(answer.user_id, answer.request_id):
            made_at = time_of(answer.request_id)
            if made_at is not None:
                self.metrics.first_token.observe(max(0.0, time.time() - made_at))


async def new_gateway(settings: Settings, access: Access) -> Gateway:
    """A gateway for topics that are there; raises `KafkaUnusableError`."""
    names = [
        settings.topic(name) for name in (TopicName.TOKENS, TopicName.REQUESTS, TopicName.CONTROLS, TopicName.TURNS)
    ]
    counts = await partitions_of(settings.cluster, names)
    return Gateway(settings, access, counts[names[0]])


def gateway_of(request: HttpRequest) -> Gateway:
    gateway: Gateway = request.app.state.gateway
    return gateway
