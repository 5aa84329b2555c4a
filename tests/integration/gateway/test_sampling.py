"""What shapes an answer arrives at the worker and in the reply, with the `demo` model behind it."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Iterator

import pytest
from openai import AsyncOpenAI

from app.local.kafka import KafkaCluster
from tests.faults.worker_process import WorkerProcess
from tests.integration.gateway.gateway_process import GatewayProcess
from tests.integration.worker.conftest import module_settings

pytestmark = pytest.mark.slow  # tests/unit/gateway/openai/test_chat.py is the short version

HELLO = [{"role": "user", "content": "Where is my order 4711?"}]
ASKED = {"model": "demo", "messages": HELLO, "max_tokens": 24, "temperature": 0}


@pytest.fixture(scope="module")
def edge(kafka: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    folder = tmp_path_factory.mktemp("demo-worker")
    settings = module_settings(kafka, folder, engine="torch", model="demo", threads=1)
    with WorkerProcess(settings, folder / "worker.log") as worker:
        worker.wait_owning(settings.partitions)
        with GatewayProcess(settings, folder / "gateway.log") as gateway:
            yield gateway


@pytest.fixture
async def client(edge: GatewayProcess) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{edge.url}/v1", api_key="any", max_retries=0, timeout=60) as client:
        yield client


async def test_logprobs_tell_each_token_with_its_rivals_whole_and_streamed(client: AsyncOpenAI) -> None:
    done = await client.chat.completions.create(**ASKED, logprobs=True, top_logprobs=3)
    reported = done.choices[0].logprobs.content
    assert len(reported) == done.usage.completion_tokens
    assert "".join(one.token for one in reported).strip() == done.choices[0].message.content.strip()
    for one in reported:
        assert bytes(one.bytes).decode() == one.token
        assert one.logprob <= 0
        assert len(one.top_logprobs) == 3
        # Greedy: the token is the likeliest of them.
        assert math.isclose(one.top_logprobs[0].logprob, one.logprob, abs_tol=1e-3)
    stream = await client.chat.completions.create(**ASKED, logprobs=True, top_logprobs=3, stream=True)
    pieces = [chunk.choices[0].logprobs async for chunk in stream]
    assert [one.token for piece in pieces if piece for one in piece.content] == [one.token for one in reported]


async def test_a_seed_gives_each_choice_words_of_its_own_and_the_same_again(client: AsyncOpenAI) -> None:
    asked = {**ASKED, "temperature": 1.5, "seed": 7, "n": 3}
    first, again = await asyncio.gather(*(client.chat.completions.create(**asked) for _ in range(2)))
    texts = [choice.message.content for choice in first.choices]
    assert len(set(texts)) > 1
    assert [choice.message.content for choice in again.choices] == texts


async def test_a_bias_bars_a_token_and_a_penalty_is_taken(client: AsyncOpenAI) -> None:
    plain = await client.chat.completions.create(**ASKED, logprobs=True, top_logprobs=1)
    stream = await client.chat.completions.create(**ASKED, stream=True, presence_penalty=2, frequency_penalty=2)
    assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
    barred = {str(number): -100 for number in range(300)}
    other = await client.chat.completions.create(**ASKED, logit_bias=barred)
    assert other.choices[0].message.content != plain.choices[0].message.content


async def test_a_form_binds_the_text(client: AsyncOpenAI) -> None:
    schema = {"type": "object", "properties": {"order": {"enum": [17, 4711]}}, "required": ["order"]}
    form = {
        "type": "json_schema",
        "json_schema": {"name": "order", "schema": {**schema, "additionalProperties": False}},
    }
    done = await client.chat.completions.create(**{**ASKED, "max_tokens": 60}, response_format=form)
    assert done.choices[0].finish_reason == "stop"
    assert json.loads(done.choices[0].message.content)["order"] in {17, 4711}
