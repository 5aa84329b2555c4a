"""Related older turns on a real worker with a real Milvus: what is recalled, what never is, and after a crash."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from app.local.milvus import MilvusNode
from app.reader.rule import Answer
from app.wire.codec import decode
from app.wire.event import PLAN, TokenEvent
from tests.faults.worker_process import WorkerProcess
from tests.integration.worker.client import Client
from tests.integration.worker.conftest import StartWorker
from tests.integration.worker.test_health import get

POLICY = """
[recall]
turns = {turns}
budget_ms = {budget_ms}
"""
QUESTION = "which colour was my bicycle?"


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("policy") / "policy.toml"
    path.write_text(POLICY.format(turns=0, budget_ms=60_000))
    return path


@pytest.fixture(scope="module")
def worker(start_worker: StartWorker, own_milvus: MilvusNode, policy: Path) -> WorkerProcess:
    return start_worker(embedder="minilm", milvus_uri=own_milvus.uri, conversation_turns=2, policy=policy)


async def remembered(client: Client, own_milvus: MilvusNode, user: str, *prompts: str) -> None:
    """Turns of the user, each in a conversation of its own, once they are in Milvus."""
    for number, prompt in enumerate(prompts):
        await client.asked(user, prompt, conversation_id=f"old-{number}", max_tokens=2)
    await client.indexed(user, 2 * len(prompts))


async def recalled(client: Client, answer: Answer) -> list[str] | None:
    events = [decode(TokenEvent, record.value, record.headers) for record in await client.records("tokens")]
    mine = [event.notice for event in events if event.request_id == answer.request_id and event.notice is not None]
    plans = [notice.details or {} for notice in mine if notice.code == PLAN]
    assert len(plans) <= 1, "what is recalled is decided once"
    return [turn["prompt"] for turn in plans[0]["recalled"]] if plans else None


async def test_the_related_turns_of_other_conversations_stand_in_the_prompt(
    client: Client, own_milvus: MilvusNode
) -> None:
    user, other = client.user(), client.user()
    facts = ("my bicycle is green", "I work in a bakery", "what is the weather like?")
    await remembered(client, own_milvus, user, *facts)
    await remembered(client, own_milvus, other, "my bicycle is yellow")
    without = await client.asked(user, QUESTION, conversation_id="a", max_tokens=2)
    one = await client.asked(user, QUESTION, conversation_id="b", max_tokens=2, recall=1)
    more = await client.asked(user, QUESTION, conversation_id="c", max_tokens=2, recall=20)
    assert await recalled(client, without) is None
    assert (await recalled(client, one) or [])[0] in {facts[0], QUESTION}
    assert set(facts) <= set(await recalled(client, more) or []) <= {*facts, QUESTION}
    used = [answer.end.usage.prompt_tokens for answer in (without, one, more)]
    assert used == sorted(used)
    assert used[0] < used[1] < used[2]
    with_messages = await client.asked(
        user, None, messages=[{"role": "user", "content": QUESTION}], conversation_id="d", max_tokens=2, recall=1
    )
    assert len(await recalled(client, with_messages) or []) == 1


async def test_a_resumed_answer_has_the_same_prompt_though_milvus_is_away(
    worker: WorkerProcess, client: Client, own_milvus: MilvusNode
) -> None:
    user = client.user()
    await remembered(client, own_milvus, user, "my bicycle is blue")
    whole = await client.asked(user, QUESTION, conversation_id="a", max_tokens=150, recall=1, temperature=0)
    request_id = await client.ask(user, QUESTION, conversation_id="b", max_tokens=150, recall=1, temperature=0)
    await client.begun(user, request_id, 10)
    worker.kill()
    own_milvus.suspend()
    try:
        worker.start()
        answer = await client.answer(user, request_id)
    finally:
        own_milvus.resume()
    assert answer.end.finish_reason == "length"
    if await recalled(client, whole) == await recalled(client, answer):
        assert answer.tokens == whole.tokens
    (turn,) = [turn for turn in await client.turns_of(user, 3) if turn.request_id == request_id]
    assert turn.answer == answer.text


async def test_erased_turns_are_never_recalled(client: Client, own_milvus: MilvusNode) -> None:
    user = client.user()
    await remembered(client, own_milvus, user, "my bicycle is purple")
    await client.send("controls", {"type": "erase", "user_id": user}, user)
    async with asyncio.timeout(120):
        while True:
            answer = await client.asked(user, QUESTION, conversation_id=f"c{time.monotonic_ns()}", recall=5)
            found = await recalled(client, answer)
            if "my bicycle is purple" not in (found or []):
                break
    again = await client.asked(user, QUESTION, conversation_id="z", recall=5)
    assert "my bicycle is purple" not in (await recalled(client, again) or [])


async def test_a_milvus_that_hangs_means_no_older_turns_within_the_budget_of_the_changed_policy(
    worker: WorkerProcess, client: Client, own_milvus: MilvusNode, policy: Path
) -> None:
    user = client.user()
    await remembered(client, own_milvus, user, "my bicycle is white")
    policy.write_text(POLICY.format(turns=3, budget_ms=200))
    async with asyncio.timeout(120):
        while "has changed and is in force" not in worker.tail():
            await asyncio.sleep(0.2)
    own_milvus.suspend()
    try:
        answer = await client.asked(user, QUESTION, conversation_id="a", max_tokens=2)
    finally:
        own_milvus.resume()
    assert await recalled(client, answer) == []
    outcomes = {
        sample.labels["outcome"]: sample.value
        for family in text_string_to_metric_families(get(worker, "/metrics"))
        for sample in family.samples
        if sample.name == "parley:recall_total"
    }
    assert outcomes["late"] + outcomes["away"] >= 1
