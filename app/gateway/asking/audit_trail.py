"""Reports searches and denied access to `audit`.

Only the owner of a partition can extend its chain, so a gateway sends them to the owner, as records of `controls`.
Equal events of one second become one record with a count, so a flood of wrong keys cannot flood Kafka. A wrong key
names no user: such events belong to the user `anonymous`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from contextlib import suppress

import msgspec
from starlette.requests import HTTPConnection

from app.gateway.asking.producer import RequestProducer
from app.gateway.callers.access import Caller
from app.gateway.callers.identity import Identity
from app.gateway.edge.errors import ApiError
from app.wire.control import Audit

log = logging.getLogger(__name__)

ANONYMOUS = "anonymous"
DENIED = frozenset({401, 403, 429})
_EVERY_S = 1.0
_MOST_KINDS = 1000


class AuditTrail:
    """Without `is_on`, it reports nothing. Nothing but `stop` waits."""

    def __init__(self, request_producer: RequestProducer, *, is_on: bool) -> None:
        self._producer = request_producer
        self._is_on = is_on
        self._counted: Counter[Audit] = Counter()
        self._task: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()

    def start(self) -> None:
        if self._is_on:
            self._task = asyncio.create_task(self._run(), name="audit-trail")

    async def stop(self) -> None:
        """Send what was counted, if Kafka takes it now."""
        self._stopping.set()
        if self._task is not None:
            await self._task
        for event, count in self._counted.items():
            log.error("%s of %r, %s times, is lost to the audit log", event.action, event.user_id, count)

    def denied(self, request: HTTPConnection, error: ApiError) -> None:
        """Report the refusal if the caller may not do what it asked for."""
        if error.status in DENIED:
            caller: Caller | None = getattr(request.state, "caller", None)
            user_id, tenant = (ANONYMOUS, None) if caller is None else (caller.holder, caller.tenant)
            self._count(Audit(user_id=user_id, tenant=tenant, action="denied", outcome=error.code, at=0))

    def refused_gateway(self) -> None:
        """Report a caller of the port for gateways that did not prove that it is one."""
        self._count(Audit(user_id=ANONYMOUS, action="denied", outcome="gateway", at=0))

    def administered(self, caller: Caller, what: str) -> None:
        self._count(Audit(user_id=caller.holder, tenant=caller.tenant, action="admin", outcome=what, at=0))

    def searched(self, identity: Identity) -> None:
        self._count(Audit(user_id=identity.user_id, tenant=identity.tenant, action="search", outcome="done", at=0))

    def _count(self, event: Audit) -> None:
        if not self._is_on:
            return
        if event.action != "admin" and event not in self._counted and len(self._counted) >= _MOST_KINDS:
            event = Audit(user_id=ANONYMOUS, action=event.action, outcome="too_many_to_name", at=0)
        self._counted[event] += 1

    async def _run(self) -> None:
        while not self._stopping.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), _EVERY_S)
            await self._report()

    async def _report(self) -> None:
        """Send what was counted; what Kafka does not take is sent with the next report."""
        at = time.time_ns() // 1_000_000
        for event, count in list(self._counted.items()):
            try:
                await self._producer.audit(msgspec.structs.replace(event, at=at, count=count))
            except ApiError as error:
                log.warning("%s of %r is not in the audit log yet: %s", event.action, event.user_id, error.message)
                return
            self._counted[event] -= count
            if not self._counted[event]:
                del self._counted[event]
