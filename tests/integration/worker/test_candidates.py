"""Candidates that are ranked, and answers that end by confidence, on a real worker with the demo model, and kills."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from app.wire.codec import decode
from app.wire.event import PLAN, TokenEvent
from tests.faults.worker_process import WorkerProcess
from tests.integration.worker.client import Client
from tests.integration.worker.conftest import StartWorker

QUESTION = "Hi, I am Nina. Tell me about your shop, your opening hours, and my order 4711."
SAMPLED = {"temperature": 1.2, "seed": 11, "max_tokens": 60}


@pytest.fixture(scope="module")
def worker(start_worker: StartWorker) -> WorkerProcess:
    return start_worker(engine="torch", threads=1, partitions=1)


async def chosen(client: Client, request_id: str) -> dict[str, Any]:
    events = [decode(TokenEvent, record.value, record.headers) for record in await client.records("tokens")]
    plans = [
        event.notice.details or {}
        for event in events
        if event.request_id == request_id and event.notice is not None and event.notice.code == PLAN
    ]
    assert len(plans) == 1, "the choice is made once"
    return plans[0]


async def test_a_chosen_candidate_goes_on_after_a_kill(worker: WorkerProcess, client: Client) -> None:
    user = client.user()
    whole = await client.asked(user, QUESTION, conversation_id="a", best_of=3, ignore_eos=True, **SAMPLED)
    request_id = await client.ask(user, QUESTION, conversation_id="b", best_of=3, ignore_eos=True, **SAMPLED)
    await asyncio.sleep(0.3)
    worker.kill()
    worker.start()
    answer = await client.answer(user, request_id)
    assert (answer.tokens, answer.complete) == (whole.tokens, True)
    assert (await chosen(client, request_id))["chosen"] == (await chosen(client, whole.request_id))["chosen"]


async def test_an_answer_ends_when_the_model_is_not_confident_any_more_and_at_the_same_token_after_a_kill(
    worker: WorkerProcess, client: Client
) -> None:
    user = client.user()
    fields = {**SAMPLED, "temperature": 1.6, "max_tokens": 100, "ignore_eos": True}
    whole = await client.asked(user, QUESTION, conversation_id="a", logprobs=True, **fields)
    logprobs = [one.logprob for event in whole.segments for one in event.logprobs or ()]
    means = [sum(logprobs[at - 8 : at]) / 8 for at in range(8, len(logprobs) + 1)]
    lowest = sorted(means)
    limit = (lowest[2] + lowest[3]) / 2  # few windows are below it, and none is so close that rounding matters
    expected = next(at for at, mean in enumerate(means, start=8) if mean < limit)
    rule = {"mean_logprob_below": limit, "over": 8}
    cut = await client.asked(user, QUESTION, conversation_id="b", stop_when=rule, **fields)
    assert (cut.end.finish_reason, len(cut.tokens)) == ("stop", expected)
    assert cut.tokens == whole.tokens[:expected]
    request_id = await client.ask(user, QUESTION, conversation_id="c", stop_when=rule, **fields)
    await client.begun(user, request_id, min(5, expected - 1))
    worker.kill()
    worker.start()
    resumed = await client.answer(user, request_id)
    assert (resumed.tokens, resumed.end.finish_reason) == (cut.tokens, "stop")
