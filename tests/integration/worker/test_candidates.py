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


async def test_readers_get_the_candidate_that_the_plan_names(client: Client) -> None:
    user = client.user()
    alone = await client.asked(user, QUESTION, conversation_id="a", **SAMPLED)
    best = await client.asked(user, QUESTION, conversation_id="b", best_of=4, **SAMPLED)
    plan = await chosen(client, best.request_id)
    assert best.complete
    assert (best.text == alone.text) == (plan.get("chosen") == 0), "candidate 0 is the answer without best_of"
    assert best.end.usage.completion_tokens == len(best.tokens) + plan["other_tokens"]
    assert {event.logprobs for event in best.segments} == {None}, "this request has not asked for them"


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
    fields = {**SAMPLED, "temperature": 1.6, "max_tokens": 200, "ignore_eos": True}
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


async def test_what_is_out_of_range_is_refused_by_name(client: Client) -> None:
    for fields, name in (
        ({"best_of": 9}, "best_of"),
        ({"stop_when": {"mean_logprob_below": -1, "over": 0}}, "stop_when.over"),
        ({"stop_when": {"mean_logprob_below": 1, "over": 3}}, "stop_when.mean_logprob_below"),
    ):
        refused = await client.asked(client.user(), "hello", **fields)
        assert refused.end.error.code == "invalid_request"
        assert refused.end.error.message.startswith(f"{name}: ")


async def test_candidates_of_a_cancelled_request_are_charged(client: Client) -> None:
    user = client.user()
    request_id = await client.ask(user, QUESTION, best_of=8, ignore_eos=True, **SAMPLED | {"max_tokens": 1500})
    await asyncio.sleep(1.5)
    await client.cancel(user, request_id)
    answer = await client.answer(user, request_id)
    assert (answer.end.finish_reason, len(answer.tokens)) == ("cancelled", 0)
    assert answer.end.usage.prompt_tokens > 0
    assert answer.end.usage.completion_tokens > 0
