"""The parts of one gateway, started and stopped together."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

from starlette.requests import HTTPConnection

from app.gateway.answers.archive import Archive, time_of
from app.gateway.answers.follow import Follower
from app.gateway.answers.live import LiveAnswers
from app.gateway.audit_trail import AuditTrail
from app.gateway.auth.access import Access
from app.gateway.auth.identity import Identity
from app.gateway.erasures import Erasures
from app.gateway.limits.backlog import Backlog
from app.gateway.limits.body_budget import BodyBudget
from app.gateway.limits.connections import Gate
from app.gateway.limits.rates import Limits
from app.gateway.metrics import Metrics
from app.gateway.offered_tools import offered_tools
from app.gateway.openai.served import ServedModels, context_lengths
from app.gateway.request_producer import RequestProducer
from app.gateway.searching import Searching
from app.kafka.clients import partitions_of
from app.kafka.topics import TopicName
from app.policy.file import read_policy
from app.policy.watch import PolicyWatch
from app.reader import Update
from app.settings import Settings
from app.telemetry.tracing import Tracing


class Gateway:
    def __init__(self, settings: Settings, access: Access, partitions: int) -> None:
        self.settings = settings
        self._tasks: set[asyncio.Task[None]] = set()
        self.access = access
        self.partitions = partitions
        self.metrics = Metrics()
        self.gate = Gate(settings.gateway_connections, settings.gateway_address_connections, settings.trusted_proxies)
        self.bodies = BodyBudget(settings.gateway_bodies_mb * 1024 * 1024)
        self.tracing = Tracing.of(settings, "parley-gateway")
        self.erasures = Erasures(settings, partitions, self._forget)
        self.live = LiveAnswers(
            settings.cluster,
            settings.topic("tokens"),
            partitions,
            self.erasures.at,
            most_events=settings.gateway_held_events,
            most_bytes=settings.gateway_held_mb * 1024 * 1024,
        )
        self.request_producer = RequestProducer(settings)
        self.audit_trail = AuditTrail(self.request_producer, is_on=bool(settings.audit_retention_s))
        self.archive = Archive(settings, self.live, self.erasures, partitions, self.metrics)
        self.follower = Follower(self.live, self.archive, self.request_producer, settings.gateway_wait_s)
        self.searching = Searching(settings)
        self.limits = Limits(settings, self.metrics)
        self.backlog = Backlog(settings, partitions)
        self.tools = offered_tools(settings.gateway_tools)
        policy = read_policy(settings.policy)
        self.models = ServedModels(settings.models, context_lengths(settings))
        self.models.use(policy)
        self._watch = None if settings.policy is None else PolicyWatch(settings.policy, policy, [self.models])
        self._watching: asyncio.Task[None] | None = None
        self.live.on_read = self.metrics.events.inc
        self.live.on_update = self._seen
        self.live.on_forget = self.request_producer.forget

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` to its end, even if the request that needs it is cancelled."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def start(self) -> None:
        await self.erasures.start()
        await self.live.start()
        await self.request_producer.start()
        self.audit_trail.start()
        self.backlog.start()
        if self._watch is not None:
            self._watching = asyncio.create_task(self._watch.run(), name="policy")

    async def stop(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
        await self.backlog.stop()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.live.stop()
        await self.erasures.stop()
        await self.audit_trail.stop()
        await self.request_producer.stop()
        await self.searching.stop()
        if self.tracing is not None:
            await asyncio.to_thread(self.tracing.stop)

    def admit(self, identity: Identity, requests: int = 1) -> None:
        """Admit that many requests, or raise `ApiError`."""
        self.backlog.check(identity.user_id)
        self.limits.admit(identity, requests)

    def _forget(self, user_id: str, at: int) -> None:
        self.live.forget_user(user_id, at)

    def _seen(self, update: Update) -> None:
        event, answer = update.event, update.answer
        self.limits.count_tokens(answer.user_id, len(event.tokens or ()))
        if event.is_end:
            self.backlog.ended(answer.user_id)
        if event.model_version:
            self.models.answered(event.model_version)
        if (
            event.index == 0
            and event.tokens
            and self.request_producer.sent(answer.user_id, answer.request_id) is not None
        ):
            made_at = time_of(answer.request_id)
            if made_at is not None:
                self.metrics.first_token.observe(max(0.0, time.time() - made_at))


async def new_gateway(settings: Settings, access: Access) -> Gateway:
    """A gateway for existing topics; raises `KafkaUnusableError`."""
    names = [
        settings.topic(name) for name in (TopicName.TOKENS, TopicName.REQUESTS, TopicName.CONTROLS, TopicName.TURNS)
    ]
    counts = await partitions_of(settings.cluster, names)
    return Gateway(settings, access, counts[names[0]])


def gateway_of(request: HTTPConnection) -> Gateway:
    gateway: Gateway = request.app.state.gateway
    return gateway
