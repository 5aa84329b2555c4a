"""A guard of patterns alone, as Presidio has them, and answers on a log that delivers at once."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from app.delivery.inflight import InFlightRequest
from app.delivery.partition import Partition
from app.delivery.resume.answer_log import AnswerLog
from app.delivery.resume.tokens import TokenLog
from app.features.guard.analyzer import Analyzer
from app.policy.guard_rules import GuardRules
from app.wire.event import PLAN, TokenEvent
from models.chat import ToolCall
from models.generation import Usage
from models.paced import paced
from tables.records import GUARD_SECRET, Change, GuardSecret, Table, encode
from tables.tool_calls import ToolOutcome, ToolRound, ToolRounds
from tests.unit.agents.inflight_requests import ASKED_AT
from tests.unit.agents.partitions import FakePartition

PATTERNS = Analyzer(GuardRules(pii="mask", pii_entities=("EMAIL_ADDRESS", "CREDIT_CARD")))


class Log:
    def __init__(self) -> None:
        self.events: list[TokenEvent] = []

    async def pause(self, _tokens: int, _delivery: asyncio.Future[Any]) -> None:
        pass

    def now(self) -> int:
        return ASKED_AT

    async def send(self, event: TokenEvent, _key: bytes | None, _headers: object = ()) -> asyncio.Future[Any]:
        self.events.append(event)
        delivered = asyncio.get_running_loop().create_future()
        delivered.set_result(None)
        return delivered

    @property
    def plans(self) -> list[dict[str, Any]]:
        notices = [event.notice for event in self.events if event.notice is not None]
        return [notice.details or {} for notice in notices if notice.code == PLAN]


def answer_of(inflight: InFlightRequest) -> tuple[AnswerLog, Log]:
    log = Log()
    inflight.answer = AnswerLog(cast(TokenLog, log), inflight, paced(1.0))
    return inflight.answer, log


def partition_with_secret() -> Partition:
    partition = FakePartition()
    row = encode(GuardSecret(b"s" * 32))
    partition.ownership.store.apply([Change(Table.GUARD, GUARD_SECRET, row)], {}, now_ms=0)
    return cast(Partition, partition)


def one_round(*results: str, arguments: str = "{}") -> ToolRounds:
    """A round of calls with these results, at the beginning of an answer."""
    calls = tuple(ToolCall("find", arguments, f"c{number}") for number in range(len(results)))
    outcomes = tuple(ToolOutcome(call.id, result) for call, result in zip(calls, results, strict=True))
    return ToolRounds(ASKED_AT, (ToolRound(0, "", calls, Usage(1, 0), ASKED_AT, ASKED_AT + 1000, outcomes),))
