"""Bodies and replies in OpenAI's form, without a gateway around them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from app.gateway.auth.identity import Identity
from app.gateway.errors import ApiError
from app.gateway.openai.chat_body import ChatBody
from app.gateway.openai.chat_reply import ChatReply
from app.wire import EventType, FinishReason, Logprob, Request, TokenEvent, Usage

HELLO = [{"role": "user", "content": "hello"}]


def requests(**fields: Any) -> list[Request]:
    body = msgspec.json.decode(msgspec.json.encode({"messages": HELLO, **fields}), type=ChatBody)
    return body.requests(Identity("nina", "acme"))


def test_what_shapes_the_answer_arrives_in_the_request() -> None:
    told = {
        "temperature": 0.5, "top_p": 0.9, "top_k": 7, "min_p": 0.1, "presence_penalty": 1.5, "frequency_penalty": -1.0,
        "repetition_penalty": 1.2, "seed": 3, "stop": "x", "logprobs": True, "top_logprobs": 2, "model": "demo",
        "metadata": {"from": "a test"}, "deadline_ms": 9, "priority": "batch", "tenant": "acme",
    }  # fmt: skip
    form = {"type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": {"type": "object"}}}
    (request,) = requests(**told, response_format=form, logit_bias={"12": -5}, max_tokens=9, max_completion_tokens=4)
    written = msgspec.to_builtins(request)
    assert {name: written[name] for name in told} == told
    assert written["response_format"] == form
    assert (request.logit_bias, request.max_tokens) == ({12: -5}, 4)
    assert (request.user_id, request.tenant) == ("acme/nina", "acme")


def test_choices_are_requests_of_their_own_with_seeds_of_their_own() -> None:
    made = requests(n=3, seed=2**63 - 2, conversation_id="talk")
    assert [one.seed for one in made] == [2**63 - 2, 2**63 - 1, -(2**63)]
    assert len({one.request_id for one in made}) == 3
    assert [one.conversation_id for one in made] == ["talk", made[1].request_id, made[2].request_id]
    assert [one.seed for one in requests(n=2)] == [None, None]


@pytest.mark.parametrize("name", ["tools", "functions", "audio", "prediction", "web_search_options"])
def test_what_would_change_the_answer_and_cannot_be_done_is_refused(name: str) -> None:
    with pytest.raises(ApiError) as refused:
        requests(**{name: [{"type": "function"}]})
    assert (refused.value.status, refused.value.param) == (400, name)
    assert requests(**{name: None})


@pytest.mark.parametrize("wrong", [{"priority": "x"}, {"deadline_ms": "soon"}])
def test_a_wrong_field_of_parley_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(msgspec.ValidationError):
        requests(**wrong)


def test_many_choices_of_a_large_prompt_are_refused_before_they_are_made() -> None:
    large = [{"role": "user", "content": "x" * 60_000}]
    with pytest.raises(ApiError, match="n: ") as refused:
        requests(messages=large, n=128)
    assert refused.value.status == 413
    assert len(requests(messages=large, n=4)) == 4


def test_another_tenant_is_refused() -> None:
    with pytest.raises(ApiError) as refused:
        requests(tenant="foo")
    assert (refused.value.status, refused.value.param) == (400, "tenant")


def token(index: int, text: str, logprob: float) -> TokenEvent:
    told = (Logprob(index, text, logprob, (Logprob(9, "z", -3.0),)),)
    return TokenEvent(type=EventType.TOKEN, index=index, tokens=(index,), text=text, logprobs=told)


def test_logprobs_are_told_for_tokens_without_text_too() -> None:
    (request,) = requests(logprobs=True, top_logprobs=1)
    said = [token(0, "", -0.5), token(1, "é", -0.25)]
    done = TokenEvent(type=EventType.DONE, index=2, finish_reason=FinishReason.STOP, usage=Usage(3, 2, 1))
    streamed = [*ChatReply([request], wants_usage=True).chunks(0, [*said, done])]
    pieces = [piece for chunk in streamed for piece in (chunk["choices"][0]["logprobs"] or {}).get("content", ())]
    reply = ChatReply([request], wants_usage=False)
    reply.add(0, [*said, done])
    whole = reply.whole()
    assert whole["choices"][0]["logprobs"]["content"] == pieces
    assert [(one["logprob"], one["bytes"], one["top_logprobs"][0]["token"]) for one in pieces] == [
        (-0.5, [], "z"),
        (-0.25, [195, 169], "z"),
    ]
    assert whole["usage"]["prompt_tokens_details"] == {"cached_tokens": 1}


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("cancelled", "stop"),
        ("partial", "length"),
        ("filtered", "content_filter"),
    ],
)
def test_every_end_has_one_of_openais_reasons_and_the_true_one_beside_it(reason: str, told: str) -> None:
    (request,) = requests()
    reply = ChatReply([request], wants_usage=False)
    reply.add(0, [TokenEvent(type=EventType.DONE, index=0, text="held", finish_reason=FinishReason(reason))])
    choice = reply.whole()["choices"][0]
    assert (choice["finish_reason"], choice["message"]["content"]) == (told, "held")
    assert choice["parley"]["finish_reason"] == reason
