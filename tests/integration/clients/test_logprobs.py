"""Log probabilities as evaluations and token viewers read them, beside those of transformers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from openai import AsyncOpenAI
from openai.types import Completion, CompletionChoice
from transformers import AutoModelForCausalLM, AutoTokenizer

from models.files.checkpoint import DEMO
from models.text.token_texts import bytes_of
from tests.integration.clients.conftest import HELLO

TEXT = "🙂🙂 ß漢 ok"
ONLY = {"structured_outputs": {"choice": [TEXT]}}
CONTEXT, CONTINUATION = "Where is my order 48213?", " It is 🙂 on its way."
NEAR = 0.05
"""The engine may calculate in another dtype."""


@pytest.fixture(scope="module")
def oracle() -> Any:
    return AutoModelForCausalLM.from_pretrained(DEMO, dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(DEMO)


def scored(oracle: Any, ids: list[int]) -> list[float]:
    """The log probability of each token but the first."""
    with torch.inference_mode():
        logprobs = oracle(torch.tensor([ids])).logits[0].float().log_softmax(dim=-1)
    return [float(logprobs[at, token]) for at, token in enumerate(ids[1:])]


async def echoed(client: AsyncOpenAI, prompt: Any, **more: Any) -> Completion:
    given = {"model": "demo", "prompt": prompt, "echo": True, "logprobs": 1, "temperature": 0}
    done: Completion = await client.completions.create(**{**given, **more})
    return done


async def joined(client: AsyncOpenAI, prompt: Any, **more: Any) -> tuple[str, list[float | None]]:
    text, logprobs = "", []
    async for chunk in await echoed(client, prompt, stream=True, **more):
        for choice in chunk.choices:
            text += choice.text
            logprobs += choice.logprobs.token_logprobs if choice.logprobs else []
    return text, logprobs


def check_offsets(choice: CompletionChoice) -> None:
    """Each token begins at its offset; a part of a character at that of the character."""
    found, before = choice.logprobs, 0
    for at, token in zip(found.text_offset, found.tokens, strict=True):
        begin = len(choice.text[:at].encode())
        assert begin <= before < begin + 4
        assert choice.text.encode()[before:].startswith(bytes_of(token))
        before += len(bytes_of(token))


@pytest.mark.parametrize("most", [0, 1])
async def test_the_likelihood_of_a_continuation_is_that_of_transformers(
    client: AsyncOpenAI, oracle: Any, tokenizer: Any, most: int
) -> None:
    ids = tokenizer(CONTEXT + CONTINUATION, add_special_tokens=False).input_ids
    begin = len(tokenizer(CONTEXT, add_special_tokens=False).input_ids)
    for prompt in (ids, [ids], CONTEXT + CONTINUATION):
        done = await echoed(client, prompt, max_tokens=most)
        (choice,) = done.choices
        found = choice.logprobs
        assert found.token_logprobs[0] is None
        assert len(found.tokens) == len(found.top_logprobs) == len(ids) + done.usage.completion_tokens
        assert found.token_logprobs[1 : len(ids)] == pytest.approx(scored(oracle, ids), abs=NEAR)
        assert sum(found.token_logprobs[begin : len(ids)]) == pytest.approx(
            sum(scored(oracle, ids)[begin - 1 :]), abs=NEAR * len(ids)
        )
        assert choice.text.startswith(CONTEXT + CONTINUATION)
        check_offsets(choice)
        if not most:
            assert (choice.text, done.usage.completion_tokens) == (CONTEXT + CONTINUATION, 0)
            assert choice.finish_reason == "length"
        text, logprobs = await joined(client, prompt, max_tokens=most)
        assert text == choice.text
        assert logprobs[1:] == pytest.approx(found.token_logprobs[1:], abs=NEAR)


async def test_ids_are_echoed_as_text_without_log_probabilities_too(client: AsyncOpenAI, tokenizer: Any) -> None:
    prompts = [tokenizer(text, add_special_tokens=False).input_ids for text in (CONTEXT, "Hi", "🙂")]
    done = await echoed(client, [*prompts, prompts[1][:1]], logprobs=None, max_tokens=0)
    assert [choice.text for choice in done.choices] == [CONTEXT, "Hi", "🙂", tokenizer.decode(prompts[1][:1])]
    assert [choice.logprobs for choice in done.choices] == [None] * 4


async def test_the_first_token_of_an_echo_has_no_log_probability(client: AsyncOpenAI, tokenizer: Any) -> None:
    first = tokenizer("Hi", add_special_tokens=False).input_ids[:1]
    (choice,) = (await echoed(client, first, max_tokens=0)).choices
    assert (choice.logprobs.tokens, choice.logprobs.token_logprobs) == ([tokenizer.decode(first)], [None])


async def test_the_bytes_of_all_tokens_are_those_of_the_text(client: AsyncOpenAI) -> None:
    done = await client.chat.completions.create(
        model="demo", messages=HELLO, logprobs=True, top_logprobs=3, extra_body=ONLY
    )
    (choice,) = done.choices
    assert choice.message.content == TEXT
    entries = choice.logprobs.content
    assert b"".join(bytes(entry.bytes) for entry in entries) == TEXT.encode()
    parts = [entry for entry in entries if entry.token.startswith("bytes:")]
    assert parts
    assert all("\ufffd" not in entry.token for entry in entries)
    response = await client.responses.create(
        model="demo", input="hi", include=["message.output_text.logprobs"], extra_body={"structured_outputs": None}
    )
    (item,) = response.output[0].content
    assert b"".join(bytes(entry.bytes) for entry in item.logprobs) == item.text.encode()


async def test_offsets_are_those_of_the_text_and_no_rival_is_lost(client: AsyncOpenAI) -> None:
    done = await client.completions.create(model="demo", prompt="Hi", logprobs=4, max_tokens=60, extra_body=ONLY)
    (choice,) = done.choices
    assert choice.text == TEXT
    check_offsets(choice)
    assert all(len(rivals) >= 4 for rivals in choice.logprobs.top_logprobs)
    chunks = [
        chunk.choices[0].logprobs
        async for chunk in await client.completions.create(
            model="demo", prompt="Hi", logprobs=4, max_tokens=60, extra_body=ONLY, stream=True
        )
        if chunk.choices and chunk.choices[0].logprobs
    ]
    assert [at for one in chunks for at in one.text_offset] == choice.logprobs.text_offset
