"""Azure OpenAI and Triton's OpenAI frontend, where they differ from OpenAI's API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from models.interface.generation import End, FinishReason, Sampling
from models.remote import RemoteEngine, RemoteOptions, RemotePrompts
from tests.unit.models.engine.reading import Answer, job, read
from tests.unit.models.remote.stand_ins import DEPLOYMENT, KEY, VERSION, Azure, Triton, azure_server, triton_server

PROMPTS = RemotePrompts(20, 1 << 16)


@pytest.fixture
async def azure() -> AsyncIterator[Azure]:
    async with azure_server() as server:
        yield server


@pytest.fixture
async def triton() -> AsyncIterator[Triton]:
    async with triton_server() as server:
        yield server


async def ask(server: Azure | Triton, fields: dict[str, Any] | None = None, **options: Any) -> Answer:
    given = {"azure_version": VERSION} if isinstance(server, Azure) else {"has_length": False}
    named = {"model": DEPLOYMENT, "api_key": KEY, "patience_s": 0.1, **given, **options}
    engine = RemoteEngine(RemoteOptions("outside", urls=(server.url,), **named))
    (stream,) = engine.submit([job(PROMPTS.build("", (), "hello").ids, **{"max_tokens": 8, **(fields or {})})])
    answer = await read(stream, is_counted=False)
    await engine.stop()
    return answer


async def test_azure_is_asked_by_deployment_version_key_and_its_own_limit(azure: Azure) -> None:
    answer = await ask(azure)
    assert (answer.text, answer.reason, azure.refused) == ("w0 w1 w2 ", FinishReason.STOP, [])
    assert azure.bodies[0]["max_completion_tokens"] == 8
    assert isinstance(answer.end, End)
    assert answer.end.usage.prompt_tokens == 5


@pytest.mark.parametrize("wrong", [{"api_key": "other"}, {"azure_version": "2020-01-01"}])
async def test_a_wrong_key_or_version_of_azure_is_no_fault_of_the_request(azure: Azure, wrong: dict[str, str]) -> None:
    answer = await ask(azure, **wrong)
    assert answer.reason in {"engine_error", "overloaded"}
    assert azure.refused


async def test_what_azure_filters_in_an_answer_ends_it_as_filtered(azure: Azure) -> None:
    azure.filters = "answer"
    answer = await ask(azure)
    assert (answer.text, answer.reason) == ("w0 w1 w2 ", FinishReason.FILTERED)


async def test_a_prompt_that_azure_filters_is_refused_with_the_reason(azure: Azure) -> None:
    azure.filters = "prompt"
    answer = await ask(azure)
    assert answer.reason == "invalid_request"
    assert "content filter" in answer.end.message  # type: ignore[union-attr]


@pytest.mark.parametrize(("most", "reason"), [(2, FinishReason.LENGTH), (8, FinishReason.STOP)])
async def test_an_answer_that_triton_cuts_is_not_said_to_be_whole(
    triton: Triton, most: int, reason: FinishReason
) -> None:
    answer = await ask(triton, {"max_tokens": most})
    assert (answer.text, answer.reason) == ("".join(f"w{n} " for n in range(min(3, most))), reason)


async def test_what_triton_refuses_is_one_line(triton: Triton) -> None:
    answer = await ask(triton, model="nobody")
    assert (answer.reason, "nobody" in answer.end.message) == ("invalid_request", False)  # type: ignore[union-attr]
    refused = await ask(triton, {"sampling": Sampling(logit_bias=((1, 1.0),))})
    assert refused.end.message.startswith("logit_bias: ")  # type: ignore[union-attr]
    assert len(triton.bodies) == 1
