"""A guard of patterns alone, as Presidio has them, and a partition in which it hides values."""

from __future__ import annotations

from app.features.guard.analyzer import Analyzer
from app.policy.guard_rules import GuardRules
from models.interface.chat import ModelCall
from models.interface.generation import Usage
from tables.records import GUARD_SECRET, GuardSecret, RowChange, Table, encode
from tables.tool_calls import ToolOutcome, ToolRound, ToolRounds
from tests.unit.delivery.fake_partition import FakePartition
from tests.unit.delivery.inflight_requests import ASKED_AT

PATTERNS = Analyzer(GuardRules(pii="mask", pii_entities=("EMAIL_ADDRESS", "CREDIT_CARD")))


def partition_with_secret() -> FakePartition:
    partition = FakePartition()
    row = encode(GuardSecret(b"s" * 32))
    partition.ownership.store.apply([RowChange(Table.GUARD, GUARD_SECRET, row)], {}, now_ms=0)
    return partition


def one_round(*results: str, arguments: str = "{}") -> ToolRounds:
    """A round of calls with these results, at the beginning of an answer."""
    calls = tuple(ModelCall("find", arguments, f"c{number}") for number in range(len(results)))
    outcomes = tuple(ToolOutcome(call.id, result) for call, result in zip(calls, results, strict=True))
    return ToolRounds(ASKED_AT, (ToolRound(0, "", calls, Usage(1, 0), ASKED_AT, ASKED_AT + 1000, outcomes),))
