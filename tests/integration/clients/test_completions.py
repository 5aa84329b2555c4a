"""`/v1/completions`, `/v1/embeddings`, and parameters of vLLM."""

from __future__ import annotations

import json
import math

import openai
import pytest
from openai import AsyncOpenAI, BadRequestError

from tests.integration.clients.conftest import ASKED, HELLO


async def test_a_completion_continues_the_text_without_template(client: AsyncOpenAI) -> None:
    prompt = "<|user|> Where is my order 48213?<|end|><|assistant|>"
    done = await client.completions.create(model="demo", prompt=prompt, max_tokens=40, temperature=0)
    assert "48213" in done.choices[0].text
    chat = await client.chat.completions.create(model="demo", messages=ASKED, temperature=0)
    assert chat.usage.prompt_tokens == done.usage.prompt_tokens
    echo = await client.completions.create(model="demo", prompt=[prompt, "Hi"], max_tokens=3, echo=True, n=2)
    assert all(
        choice.text.startswith(text) for choice, text in zip(echo.choices, [prompt] * 2 + ["Hi"] * 2, strict=True)
    )
    assert [choice.index for choice in echo.choices] == [0, 1, 2, 3]
    stream = await client.completions.create(
        model="demo", prompt=[1, 2, 3], max_tokens=4, stream=True, logprobs=1, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    assert chunks[-1].usage.prompt_tokens == 3
    assert sum(len(chunk.choices[0].logprobs.tokens) for chunk in chunks if chunk.choices and chunk.choices[0].logprobs)


async def test_an_echoed_prompt_has_the_log_probabilities_that_an_evaluation_sums(client: AsyncOpenAI) -> None:
    prompt = "Where is my order 48213?"
    given = {"model": "demo", "prompt": prompt, "max_tokens": 2, "echo": True, "logprobs": 1, "temperature": 0}
    done = await client.completions.create(**given)
    (choice,) = done.choices
    found = choice.logprobs
    assert len(found.tokens) == done.usage.total_tokens
    assert "".join(found.tokens) == choice.text
    assert all(choice.text[at:].startswith(token) for at, token in zip(found.text_offset, found.tokens, strict=True))
    assert (found.token_logprobs[0], found.top_logprobs[0]) == (None, None)
    assert all(
        max(top.values()) >= logprob
        for logprob, top in zip(found.token_logprobs[1:], found.top_logprobs[1:], strict=True)
    )
    assert len(choice.prompt_logprobs) == done.usage.prompt_tokens
    chunks = [chunk async for chunk in await client.completions.create(**given, stream=True)]
    parts = [chunk.choices[0] for chunk in chunks if chunk.choices]
    assert "".join(part.text for part in parts) == choice.text
    assert [logprob for part in parts if part.logprobs for logprob in part.logprobs.token_logprobs] == pytest.approx(
        found.token_logprobs, abs=1e-4
    )


async def test_prompt_logprobs_are_in_the_format_of_vllm(client: AsyncOpenAI) -> None:
    given = {"model": "demo", "messages": ASKED, "max_tokens": 2, "extra_body": {"prompt_logprobs": 2}}
    done = await client.chat.completions.create(**given)
    first, *rest = done.prompt_logprobs
    assert first is None
    assert len(rest) == done.usage.prompt_tokens - 1
    for entries in rest:
        assert 2 <= len(entries) <= 3
        assert {1, 2} <= {entry["rank"] for entry in entries.values()}
        assert all(entry["logprob"] <= 0 and isinstance(entry["decoded_token"], str) for entry in entries.values())
    with pytest.raises(BadRequestError, match="prompt_logprobs: excludes stream"):
        await client.chat.completions.create(**given, stream=True)
    with pytest.raises(BadRequestError, match="prompt_logprobs"):
        await client.chat.completions.create(**{**given, "extra_body": {"prompt_logprobs": 21}})


async def test_ignore_eos_and_min_tokens_keep_the_answer_going(client: AsyncOpenAI) -> None:
    plain = await client.chat.completions.create(model="demo", messages=HELLO, temperature=0)
    short = plain.usage.completion_tokens
    assert plain.choices[0].finish_reason == "stop"
    full = await client.chat.completions.create(
        model="demo", messages=HELLO, temperature=0, max_tokens=60, extra_body={"ignore_eos": True}
    )
    assert (full.usage.completion_tokens, full.choices[0].finish_reason) == (60, "length")
    least = await client.chat.completions.create(
        model="demo", messages=HELLO, temperature=0, extra_body={"min_tokens": short + 5}
    )
    assert least.usage.completion_tokens >= short + 5


async def test_the_last_message_is_continued(client: AsyncOpenAI) -> None:
    messages = [*ASKED, {"role": "assistant", "content": "Certainly. Your order"}]
    done = await client.chat.completions.create(
        model="demo", messages=messages, temperature=0,
        extra_body={"continue_final_message": True, "add_generation_prompt": False},
    )  # fmt: skip
    assert done.choices[0].message.content.startswith(" 48213")


async def test_structured_outputs_of_vllm_bind_the_answer(client: AsyncOpenAI) -> None:
    async def ask(**given: object) -> str:
        done = await client.chat.completions.create(model="demo", messages=HELLO, extra_body=given)
        return str(done.choices[0].message.content)

    assert await ask(structured_outputs={"choice": ["red", "green"]}) in {"red", "green"}
    assert (await ask(guided_regex="[0-9]{3}")).isdigit()
    assert await ask(guided_grammar='root ::= "a" | "b"') in {"a", "b"}
    closed = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"]}
    assert set(json.loads(await ask(guided_json=closed))) == {"a"}


async def test_texts_are_embedded(client: AsyncOpenAI) -> None:
    done = await client.embeddings.create(
        model="minilm", input=["a parcel is late", "the delivery is delayed", "banana"]
    )
    first, second, third = (one.embedding for one in done.data)
    assert math.isclose(sum(x * x for x in first), 1, rel_tol=1e-3)
    near, far = (sum(x * y for x, y in zip(first, other, strict=True)) for other in (second, third))
    assert near > far
    assert done.usage.prompt_tokens > 6
    plain = await client.embeddings.create(model="minilm", input="a parcel is late", encoding_format="float")
    assert plain.data[0].embedding == pytest.approx(first, abs=1e-6)
    for ids in ([1, 2], [[1, 2], [3]]):
        with pytest.raises(openai.BadRequestError, match="token ids; send texts"):
            await client.embeddings.create(model="minilm", input=ids)
