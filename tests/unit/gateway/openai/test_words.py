"""Refusals of requests in the words of the API that was called: a caller knows no other names."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from app.gateway.asking.reading import parse
from app.gateway.callers.identity import Identity
from app.gateway.edge.errors import ApiError, refused
from app.gateway.openai.chat_body import ChatBody
from app.gateway.openai.responses_body import ResponsesBody
from app.gateway.openai.responses_events import ResponseEvents
from app.gateway.openai.responses_given import given_of
from app.gateway.openai.text_body import TextBody
from app.wire.error import ErrorCode, WireError
from app.wire.event import ErrorInfo, EventType, TokenEvent
from app.wire.validation import validate_made

MESSAGES = [{"role": "user", "content": "Hi"}]


def body_of(kind: type[Any], fields: dict[str, Any]) -> Any:
    return parse(msgspec.json.encode(fields), kind)[0]


@pytest.mark.parametrize(
    ("kind", "fields", "param"),
    [
        (ResponsesBody, {"input": []}, "input"),
        (ResponsesBody, {"input": "Hi", "max_output_tokens": 0}, "max_output_tokens"),
        (ResponsesBody, {"input": "Hi", "conversation": "c" * 300}, "conversation"),
        (ResponsesBody, {"input": "Hi", "reasoning": {"effort": "e" * 300}}, "reasoning"),
        (ResponsesBody, {"input": "Hi", "temperature": 3}, "temperature"),
        (ChatBody, {"messages": MESSAGES, "max_completion_tokens": 0}, "max_completion_tokens"),
        (ChatBody, {"messages": MESSAGES, "max_tokens": 0}, "max_tokens"),
        (TextBody, {"prompt": [-1]}, "prompt"),
        (TextBody, {"prompt": "Hi", "logprobs": 100}, "logprobs"),
    ],
)
def test_what_a_request_may_not_have_is_named_as_it_was_sent(
    kind: type[Any], fields: dict[str, Any], param: str
) -> None:
    body = body_of(kind, fields)
    made = body.requests(Identity("nina"))[0] if hasattr(body, "requests") else body.request(Identity("nina"))
    with pytest.raises(WireError) as wrong:
        validate_made(made, max_prompt_bytes=1000)
    worded = body.in_callers_words(refused(wrong.value.code, wrong.value.message))
    assert (worded.param, worded.status) == (param, 400)
    assert worded.message.startswith(f"{param}: ")


def test_what_a_worker_refuses_is_named_too_and_what_names_no_field_stays() -> None:
    body = body_of(ResponsesBody, {"input": "Hi", "previous_response_id": "resp_c.r"})
    worded = body.in_callers_words(refused("invalid_request", "previous_request_id: conversation c has no turn of r"))
    assert worded.param == "previous_response_id"
    assert "request_id" not in worded.message
    assert body.in_callers_words(refused("model_not_found", "model: there is no 'x'")).param == "model"
    plain = refused("prompt_too_long", "max_tokens: not the field of this code")
    assert body.in_callers_words(plain) is plain
    assert plain.param is None
    assert refused(ErrorCode.INVALID_REQUEST, "no field: at all").param is None
    body = body_of(ResponsesBody, {"input": "Hi", "previous_response_id": f"resp_{'c' * 300}.r"})
    with pytest.raises(ApiError, match="previous_response_id: is not the id of a response"):
        body.request(Identity("nina"))


def test_a_response_that_is_read_later_has_the_same_words() -> None:
    body = body_of(ResponsesBody, {"input": "Hi", "previous_response_id": "resp_c.r", "background": True})
    events = ResponseEvents(body.request(Identity("nina")), given_of(body, "demo"))
    error = ErrorInfo("invalid_request", "previous_request_id: conversation c has no turn of r")
    for _ in events.read(TokenEvent(type=EventType.ERROR, error=error)):
        pass
    assert events.response["error"]["message"].startswith("previous_response_id: names no response")
