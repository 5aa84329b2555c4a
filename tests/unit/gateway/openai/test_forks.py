"""OpenAI's calls with the extra field `from`."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from app.gateway.callers.identity import Identity
from app.gateway.edge.errors import ApiError
from app.gateway.openai.chat_body import ChatBody
from app.gateway.openai.responses_body import ResponsesBody
from app.wire.request import Fork, Request
from app.wire.validation import validate_made

FROM = {"conversation_id": "c1", "request_id": "r7"}
ASKED = {"role": "user", "content": "And?"}


def chat(fork: dict[str, Any], *messages: dict[str, Any]) -> Request:
    body = {"model": "default", "messages": messages, "from": fork, "conversation_id": "c2"}
    return msgspec.convert(body, ChatBody).requests(Identity("u"))[0]


def test_a_chat_completion_forks() -> None:
    request = chat(FROM, ASKED)
    assert (request.fork, request.prompt, request.messages) == (Fork(**FROM), "And?", None)
    validate_made(request, max_prompt_bytes=1000)


def test_without_a_message_the_question_is_asked_again() -> None:
    request = chat({**FROM, "index": 0})
    assert (request.fork, request.prompt, request.messages) == (Fork(**FROM, index=0), None, None)
    validate_made(request, max_prompt_bytes=1000)


def test_a_whole_context_beside_a_fork_is_refused() -> None:
    with pytest.raises(ApiError, match="from brings the context"):
        chat(FROM, {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}, ASKED)


def test_a_response_forks() -> None:
    body = msgspec.convert({"model": "default", "input": "And?", "from": FROM, "conversation": "c2"}, ResponsesBody)
    request = body.request(Identity("u"))
    assert (request.fork, request.prompt, request.messages) == (Fork(**FROM), "And?", None)
    validate_made(request, max_prompt_bytes=1000)
