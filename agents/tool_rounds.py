"""Calls of tools over Kafka (`tool_mode` `kafka`): an answer asks, waits, and goes on.

1. Ask: one transaction writes the calls to `tool-calls` and the round to the table `calls`. All token events of the
   round are delivered before, so the log and the row agree on where the round ended.
2. Wait until each call has a result or its time is over. Meanwhile the request holds no slot that others could use. The
   agent on `tool-results` (tool_results.py) adds the results; the timeout adds what is missing.
3. Go on: the next round's prompt ends in the calls and their results, and its tokens continue the answer's index.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress

from app.delivery.commits.commit import Commit
from app.delivery.inflight import InFlightRequest
from app.delivery.partition import Partition
from app.delivery.record import TOOL_RESULTS as TOOL_RESULTS_TOPIC
from app.delivery.record import Outgoing
from app.delivery.resume.answer_log import AnswerLog
from app.delivery.stop_handle import StoppedError
from app.settings import Settings
from app.wire.codec import encode
from app.wire.event import TOOL_CALLS, TOOL_RESULTS
from app.wire.limits import TOOL_TIMEOUT_MS
from app.wire.tool_records import ToolCallRecord
from app.wire.tools import ToolMode
from models.chat import ToolCall
from models.generation import End, FinishReason
from tables.tool_calls import ToolRound, ToolRounds, fits

log = logging.getLogger(__name__)

_READ_S = 10.0
TIMED_OUT = "error: the tool did not answer in time"
CANCELLED = "error: the answer was stopped before the tool answered"
# Answers of one user that wait in one partition, as a multiple of those that may run.
_MOST_WAITING = 8
_SHOWN = 1000
"""Characters of a result in a notice: it is for display, and the table has the whole."""


class ToolCallsTooLargeError(Exception):
    """The calls and results of the answer do not fit into a row."""


class ToolCalls:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def refusal(self, partition: Partition, inflight: InFlightRequest) -> str | None:
        """Why the request may not begin: its user has too many answers that wait, each of which needs memory."""
        most = _MOST_WAITING * self._settings.max_in_flight
        if inflight.request.tool_mode is not ToolMode.KAFKA or partition.records.lent_by(inflight.record.key) < most:
            return None
        return f"{most} answers of this user wait for the results of tools; try again when some of them have ended"

    async def ask(self, partition: Partition, inflight: InFlightRequest, answer: AnswerLog, end: End) -> None:
        """Make the calls in which a round has ended; raises `ToolCallsTooLargeError`."""
        now = partition.ownership.clock.now()
        one = ToolRound(
            end=answer.index,
            text=answer.text_of_round,
            calls=tuple(ToolCall(call.name, call.arguments, answer.call_id(at)) for at, call in enumerate(end.calls)),
            usage=end.usage,
            asked_at=now,
            expires_at=now + self._timeout_ms(inflight),
        )
        rounds = inflight.rounds.asked(one)
        if not fits(rounds, inflight.kept_bytes):
            raise ToolCallsTooLargeError
        await answer.delivered()
        change = partition.ownership.calls.decide(inflight.key, rounds)
        outputs = tuple(self._record(inflight, one, call) for call in one.calls)
        await partition.commit(Commit(None, (change,), outputs), urgent=True)
        inflight.made = inflight.rounds = rounds
        answer.continue_after(rounds)
        inflight.has_begun()
        await answer.notice(TOOL_CALLS, _waits_for(one.calls), {"calls": [_shown_call(call) for call in one.calls]})

    async def wait(self, partition: Partition, inflight: InFlightRequest, answer: AnswerLog) -> FinishReason | None:
        """Wait until each call of the last round has a result; returns why the request is stopped, if it is."""
        calls = partition.ownership.calls
        with (
            calls.waiting(inflight.key) as changed,
            partition.without_slot(inflight),
            inflight.stop.listening(lambda _reason: changed.set()),
        ):
            while inflight.stop.reason is None:
                changed.clear()
                inflight.made = inflight.rounds = calls.committed(inflight.key) or inflight.rounds
                if not inflight.rounds.missing:
                    break
                left_s = (inflight.rounds.rounds[-1].expires_at - partition.ownership.clock.now()) / 1000
                if left_s <= 0:
                    await self._time_out(partition, inflight)
                    continue
                with suppress(TimeoutError):
                    async with asyncio.timeout(left_s):
                        await changed.wait()
        if inflight.stop.reason is None:
            results = inflight.rounds.rounds[-1].outcomes
            shown = [{"tool_call_id": one.call_id, "content": one.content[:_SHOWN]} for one in results]
            await answer.notice(TOOL_RESULTS, "the answer goes on with the results of its calls", {"results": shown})
        return inflight.stop.reason

    async def _time_out(self, partition: Partition, inflight: InFlightRequest) -> None:
        """Decide that the missing results come too late. Those that arrived while no worker read them are not, unless
        they cannot be read now.
        """
        try:
            async with asyncio.timeout(_READ_S):
                await inflight.stop.run(partition.ownership.calls.read_to_end())
        except StoppedError:
            return
        except TimeoutError:
            at = partition.context.topic_partition(TOOL_RESULTS_TOPIC)
            log.warning("%s[%s] cannot be read: calls of request %s time out", *at, inflight.key)
        rounds = partition.ownership.calls.decided(inflight.key) or inflight.rounds
        if not rounds.missing:
            return
        change = partition.ownership.calls.decide(inflight.key, rounds.without_results(TIMED_OUT))
        await partition.commit(Commit(None, (change,)), urgent=True)

    def _timeout_ms(self, inflight: InFlightRequest) -> int:
        return inflight.request.tool_timeout_ms or TOOL_TIMEOUT_MS

    def _record(self, inflight: InFlightRequest, one: ToolRound, call: ToolCall) -> Outgoing:
        request = inflight.request
        record = ToolCallRecord(
            tool_call_id=call.id,
            name=call.name,
            arguments=call.arguments,
            request_id=request.request_id,
            user_id=request.user_id,
            conversation_id=request.conversation_id,
            created_at=one.asked_at,
            expires_at=one.expires_at,
            tenant=request.tenant,
        )
        value, headers = encode(record, self._settings.wire_format)
        return Outgoing(
            self._settings.topic("tool-calls"), inflight.record.key, value, [*headers, *inflight.trace_headers]
        )


def stopped(rounds: ToolRounds) -> ToolRounds:
    """The rounds of an answer that was stopped while it waited: every call has a result, as templates expect."""
    return rounds.without_results(CANCELLED)


def _waits_for(calls: Sequence[ToolCall]) -> str:
    return f"the answer waits for {', '.join(dict.fromkeys(call.name for call in calls))}"


def _shown_call(call: ToolCall) -> dict[str, str]:
    return {"id": call.id, "name": call.name, "arguments": call.arguments}
