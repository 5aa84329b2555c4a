"""What one user sends, however much and however long its answers are, does not delay another user."""

from __future__ import annotations

import pytest

from app.wire.codec import decode
from app.wire.error import ErrorCode
from app.wire.event import TokenEvent
from tests.faults.load import TOOLS
from tests.faults.worker_process import WorkerProcess
from tests.integration.worker.client import Client
from tests.integration.worker.conftest import StartWorker

MAX_IN_FLIGHT = 2
FLOOD = 300


@pytest.fixture(scope="module")
def worker(start_worker: StartWorker) -> WorkerProcess:
    return start_worker(max_in_flight=MAX_IN_FLIGHT, partitions=1)


async def test_a_flood_of_one_user_delays_another_by_a_few_answers(client: Client) -> None:
    many, other = client.user(), client.user()
    for number in range(FLOOD):
        await client.ask(many, max_tokens=5, conversation_id=f"c{number}")
    answer = await client.asked(other, max_tokens=1)
    assert answer.end is not None
    events = [decode(TokenEvent, record.value, record.headers) for record in await client.records("tokens")]
    first = next(at for at, event in enumerate(events) if event.user_id == other)
    before = {event.request_id for event in events[:first] if event.user_id == many and event.tokens}
    assert len(before) < FLOOD / 3, "the topic was read no further than to the flood"
    turns = await client.turns_of(many, FLOOD)
    assert len({turn.request_id for turn in turns}) == len(turns) == FLOOD


async def test_answers_that_wait_for_tools_are_bounded_by_user_and_delay_nobody(client: Client) -> None:
    many, other = client.user(), client.user()
    waiting = {"tools": TOOLS, "tool_mode": "kafka", "tool_timeout_ms": 3_600_000}
    most = 8 * MAX_IN_FLIGHT
    asked = [
        await client.ask(many, max_tokens=2, conversation_id=f"c{number}", **waiting)
        for number in range(most + 2 * MAX_IN_FLIGHT)
    ]
    answer = await client.asked(other, max_tokens=1)
    assert answer.end is not None
    assert answer.end.error is None
    refused = await client.answer(many, asked[-1])
    assert refused.end is not None
    assert refused.end.error is not None
    assert refused.end.error.code == ErrorCode.OVERLOADED
    assert str(most) in refused.end.error.message
    plain = await client.asked(many, max_tokens=1)
    assert plain.end is not None
    assert plain.end.error is None
