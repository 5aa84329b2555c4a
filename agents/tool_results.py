"""The agent on `tool-results`: takes the results of calls that answers wait for.

This task reads the topic with its own consumer, and only while an answer of the partition waits. The group's
subscription is therefore the same with and without tools, and a worker without open calls pays nothing. A result that
comes at another time is skipped, or becomes a dead letter, when the next answer of the partition waits. The last result
of an answer that sleeps wakes it, in the same transaction.

Each result counts once, whichever process dies: results, and the position up to which the topic is read, are rows of
the table `calls`, written in one transaction of the partition's owner. Per call the first result counts. Of what
follows,

    repeated or late    is skipped: the call has a result, or its time is over
    too large           becomes an error that the model reads, and a dead letter
    of no known call    becomes a dead letter
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec
from aiokafka import ConsumerRecord

from app.delivery.accepted import RequestKey
from app.delivery.dead_letters import error_of_unexpected, letter_of
from app.delivery.escalation import ESCALATING
from app.delivery.follower import TopicTask, follow
from app.delivery.partition import Partition
from app.delivery.record import TOOL_RESULTS, Outgoing, Record
from app.features.answer_steps import tell_calls
from app.features.open_calls import OpenCalls
from app.features.tool_rounds import ToolsOverKafka
from app.features.waits.wake import Woken, beside_of, commit, wake_with
from app.settings import Settings
from app.wire.codec import decode
from app.wire.error import ErrorCode, WireError
from app.wire.tool_records import ToolResultRecord
from app.wire.validation import check_partition, validate_tool_result
from tables import records
from tables.erasures import has_marks
from tables.records import RowChange, Table
from tables.tool_calls import PROGRESS, ResultsPosition, ToolOutcome, ToolRounds, fits

_POLL_MS = 250


class ToolResults:
    def __init__(self, settings: Settings, tools: ToolsOverKafka) -> None:
        self._settings = settings
        self._tools = tools

    def begin(self, partition: Partition) -> None:
        """Read results until the ownership ends."""
        partition.spawn(self._read_when_needed(partition))

    async def _read_when_needed(self, partition: Partition) -> None:
        read, at = partial(self._read, partition), partition.context.topic_partition(TOOL_RESULTS)
        reader = partial(partition.context.clients.log_reader, wait_ms=_POLL_MS)
        while True:
            await self._tools.calls_of(partition.ownership).some.wait()
            await follow(at, reader, partial(_next_of, partition), read)

    async def _read(self, partition: Partition, results: TopicTask) -> None:
        """Read while an answer waits."""
        calls = self._tools.calls_of(partition.ownership)
        while calls.some.is_set():
            if reads := calls.reads:
                end = await results.end()
                while await results.position() < end:
                    await self._poll(partition, results)
                calls.have_read(reads)
            await self._poll(partition, results)

    async def _poll(self, partition: Partition, results: TopicTask) -> None:
        consumed, position = await results.poll(_POLL_MS)
        if consumed:
            await self._commit(partition, consumed, position)

    async def _commit(self, partition: Partition, batch: Sequence[ConsumerRecord], position: int) -> None:
        calls = self._tools.calls_of(partition.ownership)
        changes: dict[RequestKey, RowChange] = {}
        decided: dict[RequestKey, ToolRounds] = {}
        steps: list[tuple[RequestKey, ToolRounds, ToolRounds, Record]] = []
        letters: list[Outgoing] = []
        for consumed in batch:
            record = Record.of(TOOL_RESULTS, consumed)
            try:
                record.check_readable()
                result = decode(ToolResultRecord, record.value, record.headers)
                validate_tool_result(result, record.key)
                check_partition(result, record.partition, self._settings.partitions)
                rounds = _rounds_without(partition, calls, result)
                if rounds is None:
                    continue
                error = self._too_large(partition, result, rounds)
                content = result.content if error is None else f"error: {error.message}"
                outcome = ToolOutcome(result.tool_call_id, content)
                key = (result.user_id, result.request_id)
                decided[key] = rounds.answered(outcome)
                steps.append((key, rounds, decided[key], record))
                changes[key] = calls.decide(key, decided[key])
                if error is not None:
                    letters.append(letter_of(record, error, self._settings))
            except WireError as error:
                letters.append(letter_of(record, error, self._settings))
            except ESCALATING:
                raise
            except Exception as error:  # noqa: BLE001 - of this record
                letters.append(letter_of(record, error_of_unexpected(record, error), self._settings))
        progress = RowChange(Table.CALLS, PROGRESS, records.encode(ResultsPosition(position)))
        woken = [wake_with(partition, key, rounds) for key, rounds in decided.items()]
        taken = Woken((*changes.values(), progress), tuple(letters))
        await commit(partition, decided, [taken, *woken], urgent=bool(changes))
        for key, before, after, record in steps:
            tell_calls(partition, key, before, after, record.timestamp, record.headers)
        calls.settle(decided)
        calls.wake(changes)

    def _too_large(self, partition: Partition, result: ToolResultRecord, rounds: ToolRounds) -> WireError | None:
        size, most = len(result.content.encode()), self._settings.max_prompt_bytes
        if size > most:
            return WireError(ErrorCode.PROMPT_TOO_LONG, f"the tool's result has {size} bytes, the limit is {most}")
        beside = beside_of(partition, (result.user_id, result.request_id))
        if not fits(rounds.answered(ToolOutcome(result.tool_call_id, result.content)), beside):
            return WireError(ErrorCode.PROMPT_TOO_LONG, "the results of this answer are too large together")
        return None


def _next_of(partition: Partition) -> int:
    """The offset up to which the partition's owners have read."""
    raw = partition.ownership.store.get(Table.CALLS, PROGRESS)
    return 0 if raw is None else msgspec.json.decode(raw, type=ResultsPosition).next


def _rounds_without(partition: Partition, calls: OpenCalls, result: ToolResultRecord) -> ToolRounds | None:
    """The rounds of the request that waits for this result; None if it does not wait any more, or may be erased.

    Raises:
        WireError: the request has not made this call.
    """
    key = (result.user_id, result.request_id)
    rounds, store = calls.decided(key), partition.ownership.store
    has_ended = store.get(Table.ENDED, records.key(*key)) is not None
    if rounds is None and (has_ended or has_marks(store, result.user_id)):
        return None
    made = set() if rounds is None else {call.id for call in rounds.calls}
    if rounds is not None:
        made -= {*(call.id for call in rounds.asked_calls), *(one.call_id for one in rounds.agents)}
    if rounds is None or result.tool_call_id not in made:
        raise WireError(
            ErrorCode.NOT_FOUND,
            f"tool_call_id: request {result.request_id} of {result.user_id} has no call {result.tool_call_id}",
        )
    return rounds if any(call.id == result.tool_call_id for call in rounds.missing) else None
