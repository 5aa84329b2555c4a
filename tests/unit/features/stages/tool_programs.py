"""What runs the tools of answers, as programs on `tool-calls` do."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from app.delivery.commits.commit import Commit
from app.features.tool_rounds import ToolsOverKafka
from tables import records
from tables.records import Table
from tables.tool_calls import ToolOutcome, ToolRounds
from tests.unit.answering.bench import BenchPartition


def tool_results(partition: BenchPartition, tools: ToolsOverKafka, result: str = "sunny") -> None:
    """Answer each call of a tool when it is committed, as the agent on `tool-results` does."""

    def answer(user_id: str, request_id: str) -> None:
        calls, key = tools.calls_of(cast(Any, partition.ownership)), (user_id, request_id)
        rounds = calls.decided(key)
        if rounds is None or not rounds.missing:
            return
        for call in rounds.missing:
            rounds = rounds.answered(ToolOutcome(call.id, f"{result} {call.id[-4:]}"))
        partition.apply(calls.decide(key, rounds))
        calls.wake([key])

    def on_commit(commit: Commit) -> None:
        for change in commit.changes:
            if change.table is Table.CALLS and change.value is not None:
                answer(*msgspec.json.decode(change.key))

    partition.on_commit = on_commit
    for key, value in [*partition.ownership.store.scan(Table.CALLS)]:
        if records.decode_row(value, ToolRounds).missing:
            answer(*msgspec.json.decode(key))
