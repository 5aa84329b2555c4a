"""The parts of one gateway, started and stopped together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import aclosing
from socket import socket
from typing import Any

import msgspec
from aiokafka.errors import KafkaError
from starlette.requests import HTTPConnection
from websockets.asyncio.server import ServerConnection

from app.gateway.answers.approvals import Approvals
from app.gateway.answers.archive import Archive
from app.gateway.answers.asked import AskedRequests
from app.gateway.answers.follow import AnswerReader
from app.gateway.answers.live import LiveAnswers
from app.gateway.answers.sent import SentRequests
from app.gateway.answers.waiting import WaitingAnswers
from app.gateway.asking.accounts import Accounts
from app.gateway.asking.audit_trail import AuditTrail
from app.gateway.asking.models import ServedModels, context_lengths
from app.gateway.asking.pages import Pages
from app.gateway.asking.producer import RequestProducer
from app.gateway.asking.searching import Searching
from app.gateway.asking.tenants import TenantLimits
from app.gateway.asking.tools import offered_tools, with_offered_tools
from app.gateway.callers.access import Access, Caller
from app.gateway.callers.backlog import Backlog
from app.gateway.callers.identity import Identity
from app.gateway.callers.rates import RateLimits
from app.gateway.edge import bounds
from app.gateway.edge.bodies import Bodies
from app.gateway.edge.connections import Gate
from app.gateway.edge.errors import invalid, lasting
from app.gateway.edge.metrics import GatewayMetrics
from app.gateway.erasure.erasures import ErasureBook
from app.gateway.peers.admission import Admission
from app.gateway.peers.assignor import Division, Member
from app.gateway.peers.directory import Directory
from app.gateway.peers.link import Links
from app.gateway.peers.membership import Membership
from app.gateway.peers.port import PeerPort, address_of
from app.gateway.peers.session import Session
from app.gateway.peers.trust import owner_tls, peer_tls, trust_of
from app.kafka.broker_version import check_version
from app.kafka.clients import KafkaUnusableError, partitions_of
from app.policy.check import read_policy
from app.policy.watch import PolicyWatch
from app.settings import Settings
from app.settings.kafka import TopicName
from app.telemetry.tracing import Tracing
from app.wire.request import MAX_BEST_OF, Request
from app.wire.turn import Turn
from models.files.adapter_folders import adapter_folders
from models.interface.unexpected import type_and_line
from tables.erasures import Scope

log = logging.getLogger(__name__)


class Gateway:
    def __init__(self, settings: Settings, access: Access, partitions: int) -> None:
        self.settings = settings
        self._tasks: set[asyncio.Task[None]] = set()
        self.access = access
        self.partitions = partitions
        self.metrics = GatewayMetrics()
        self.gate = Gate(bounds.CONNECTIONS, bounds.CONNECTIONS_OF_ADDRESS, settings.trusted_proxies)
        self.bodies = Bodies(bounds.BODIES_BYTES)
        self.replies = Bodies(bounds.REPLIES_BYTES, "replies")
        self.tracing = Tracing.of(settings, "parley-gateway")
        self.sent = SentRequests()
        self.request_producer = RequestProducer(settings, self.sent)
        self.audit_trail = AuditTrail(self.request_producer, is_on=bool(settings.audit_retention_s))
        self.directory = Directory(partitions, settings.gateway_advertise or None)
        self._trust = trust_of(settings, development=access.development)
        peer, owner = peer_tls(settings), owner_tls(settings)
        self.tls_contexts = [one for one in (peer, owner) if one is not None]
        self.links = Links(self._trust, peer, self.metrics)
        self._membership: Membership | None = None
        self._peer_port = PeerPort(self._trust, owner, self._serve_peer, self._refused_peer)
        self.limits = RateLimits(settings, self.metrics)
        policy = read_policy(settings)
        adapters = adapter_folders(settings.adapters)
        self.models = ServedModels(settings.models, context_lengths(settings), adapters=adapters)
        self.models.use(policy)
        self.pages = Pages(policy)
        self.backlog = Backlog(settings, partitions, self.models.serve)
        self.admission = Admission(self.limits, self.backlog, self.directory, self.links)
        self.searching = Searching(settings)
        self.tools = offered_tools(settings.gateway_tools)
        self.tenants = TenantLimits(settings, policy, self.models, partitions, lambda: self.live.partitions)
        self.waiting = WaitingAnswers(settings, policy, partitions)
        self.approvals = Approvals(settings, self.waiting, partitions)
        self._watch = None
        if settings.policy is not None:
            self._watch = PolicyWatch(settings, policy, (self.models, self.tenants, self.pages, self.waiting))
        self._following: list[asyncio.Task[None]] = []
        self.erasures = ErasureBook(settings, partitions, self._drop, self._withdraw)
        self.asked = AskedRequests(settings, self.erasures, partitions, self.metrics)
        self._accounts = Accounts(
            self.metrics,
            self.sent,
            self.directory,
            self.backlog,
            self.admission,
            self.tenants,
            self.models,
        )
        self.live = LiveAnswers(
            settings.cluster,
            settings.topic("tokens"),
            partitions,
            self.erasures.at,
            most_events=bounds.HELD_EVENTS,
            most_bytes=bounds.HELD_BYTES,
            observer=self._accounts,
            reads_back=bool(settings.gateway_advertise),
        )
        self.archive = Archive(settings, self.live, self.erasures, partitions, self.metrics)
        self.follower = AnswerReader(
            self.live,
            self.archive,
            self.sent,
            self.directory,
            self.links,
            self._accounts,
            settings.gateway_wait_s,
        )

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` to its end, even if the request that needs it is cancelled."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("what was left to do for a caller failed: %s", type_and_line(error))

    async def start(self, peers: socket | None = None) -> None:
        """`peers`: the bound socket of the port for gateways, if this one shares the partitions."""
        self.metrics.log_lines.start()
        await self.erasures.start()
        if peers is None:
            await self.live.read(range(self.partitions))
        else:
            await self._peer_port.start(peers)
            member = Member(self._trust.name, address_of(self.settings, peers), keys=self._trust.key_ids)
            self._membership = Membership(self.settings, member, self._assigned)
            await self._membership.start()
        await self.request_producer.start()
        self.audit_trail.start()
        self.backlog.start()
        if self._watch is not None:
            self._following = [
                asyncio.create_task(lasting("reading the policy", self._watch.run)),
                asyncio.create_task(lasting("reading usage", self.tenants.follow)),
            ]

    def leave(self) -> None:
        """The gateway is going to stop: send readers elsewhere, and let the other gateways take over at once."""
        self.live.close()
        self.approvals.close()
        if self._membership is not None:
            self.spawn(self._membership.stop())

    async def stop(self) -> None:
        for task in self._following:
            task.cancel()
        await asyncio.gather(*self._following, return_exceptions=True)
        await self.backlog.stop()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._membership is not None:
            await self._membership.stop()
        await self.live.stop()
        await self._peer_port.stop()
        await self.links.close()
        await self.asked.stop()
        await self.approvals.stop()
        await self.erasures.stop()
        await self.audit_trail.stop()
        await self.request_producer.stop()
        await self.searching.stop()
        self.metrics.log_lines.stop()
        if self.tracing is not None:
            await asyncio.to_thread(self.tracing.stop)

    async def admit(self, identity: Identity, asked: Sequence[Request]) -> Sequence[Request]:
        """Admit these requests and check them, all or none; raises `ApiError`. Returns them as they are to be sent.

        Choices of one prompt differ in ids and seeds only, so one of them is checked.
        """
        asked = [self.models.by_agent(await self._with_beginning(request)) for request in asked]
        if not self.access.development:
            own = self.tenants.tools_of(identity.tenant or "")
            asked = [with_offered_tools(request, self.tools, own) for request in asked]
        prompts = {(id(one.messages), id(one.prompt), id(one.prompt_token_ids)): one for one in asked}.values()
        for request in prompts:
            self.tenants.check(request)
        await self.admission.admit(identity, sum(map(_answers_of, asked)), len(asked))
        self.tenants.admitted(asked)
        for request in prompts:
            self.request_producer.check(request)
            await asyncio.sleep(0)  # many tools take milliseconds
        return asked

    async def _with_beginning(self, request: Request) -> Request:
        """With the first tokens of the answer within which it forks, if it does not bring them; raises `ApiError`."""
        fork = request.fork
        if fork is None or not fork.index or fork.tokens is not None:
            return request
        answer = await self.follower.answer(request.user_id, fork.request_id)
        tokens = () if answer is None else tuple(answer.tokens[: fork.index])
        if len(tokens) < fork.index:
            raise invalid("from.index", f"the answer of {fork.request_id} has {len(tokens)} tokens here")
        return msgspec.structs.replace(request, fork=msgspec.structs.replace(fork, tokens=tokens))

    async def erase(self, scope: Scope) -> None:
        """Send an erasure of this user or conversation (as in Kafka); raises `ApiError`."""
        try:
            self.erasures.asked(scope, await self.request_producer.erase(scope))
        finally:
            # An erasure that Kafka has not confirmed may still be written.
            self.live.drop(scope)

    async def turns(self, user_id: str) -> AsyncGenerator[Turn, None]:
        """The user's turns, oldest first, with those of all answers whose end was told and without what was erased,
        whichever gateway has done it. Close it if you leave it early. Raises `ApiError`.
        """
        await self.erasures.current(user_id)
        awaited = await self.follower.ended(user_id)
        async with aclosing(self.archive.turns(user_id, awaited)) as turns:
            async for turn in turns:
                yield turn

    def may_name(self, caller: Caller, model: str) -> bool:
        """Whether the caller's tenant may name this model."""
        return self.tenants.may_name(caller.tenant or "", model)

    def _refused_peer(self) -> None:
        self.metrics.refused_links.labels("asked").inc()
        self.audit_trail.refused_gateway()

    async def _serve_peer(self, connection: ServerConnection) -> None:
        await Session(connection, self.follower, self.directory, self.admission).serve()

    async def _assigned(self, division: Division) -> None:
        """The group has divided the partitions among the gateways."""
        owners = division.owners
        mine = owners.get(self._trust.name, [])
        self.backlog.keep(mine)
        self.metrics.fleets.set(division.fleets)
        if division.fleets > 1:
            log.warning(
                "gateways have %d different PARLEY_GATEWAY_PEER_SECRETs: each of these fleets serves all users, and "
                "keeps their limits for itself",
                division.fleets,
            )
        self.directory.replace({number: address for address, numbers in owners.items() for number in numbers})
        try:
            await self.live.read(mine)
        except (KafkaError, KafkaUnusableError, OSError) as error:
            log.warning("cannot read the partitions of tokens that were assigned: %s; retrying", error)
        self._accounts.assigned(self.live.partitions)
        await self.links.keep({name: port for name, port in division.ports.items() if name != self._trust.name})

    def _withdraw(self, user_id: str, request_id: str) -> None:
        self.asked.withdraw(user_id, request_id)

    def _drop(self, scope: Scope, at: int) -> None:
        self.live.drop(scope, at)
        self.approvals.drop(scope, at)


def _answers_of(request: Request) -> int:
    """How many answers are computed for it. A worker refuses what is out of range."""
    return min(max(request.best_of or 1, 1), MAX_BEST_OF)


async def new_gateway(settings: Settings, access: Access) -> Gateway:
    """A gateway for existing topics, on a Kafka that is recent enough; raises `KafkaUnusableError`."""
    if warning := await check_version(settings.cluster):
        log.warning("%s", warning)
    names = [
        settings.topic(name) for name in (TopicName.TOKENS, TopicName.REQUESTS, TopicName.CONTROLS, TopicName.TURNS)
    ]
    counts = await partitions_of(settings.cluster, names)
    return Gateway(settings, access, counts[names[0]])


def gateway_of(request: HTTPConnection) -> Gateway:
    gateway: Gateway = request.app.state.gateway
    return gateway
