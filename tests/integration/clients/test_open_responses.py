"""The cases of Open Responses' compliance suite, which is in no registry: seven calls, and the form of what comes back.

A response has every field that the standard requires, of its type; a stream ends in such a response.
"""

from __future__ import annotations

import json
from typing import Any

import httpx
import jsonschema
import pytest

from tests.integration.gateway.events import blocks

_TEXT, _NUMBER, _WHOLE, _FLAG = {"type": "string"}, {"type": "number"}, {"type": "integer"}, {"type": "boolean"}
_MAYBE_TEXT, _MAYBE_WHOLE = {"type": ["string", "null"]}, {"type": ["integer", "null"]}
_MAYBE_OBJECT, _LIST = {"type": ["object", "null"]}, {"type": "array"}
_PART = {
    "type": "object",
    "required": ["type", "text", "annotations", "logprobs"],
    "properties": {"type": {"const": "output_text"}, "text": _TEXT, "annotations": _LIST, "logprobs": _LIST},
}
_MESSAGE = {
    "required": ["type", "id", "status", "role", "content"],
    "properties": {"type": {"const": "message"}, "role": {"const": "assistant"}, "content": {"items": _PART}},
}
_CALL = {
    "required": ["type", "id", "call_id", "name", "arguments", "status"],
    "properties": {"type": {"const": "function_call"}, "call_id": _TEXT, "name": _TEXT, "arguments": _TEXT},
}
_COUNTS = {"type": "object", "additionalProperties": _WHOLE}
_FIELDS: dict[str, Any] = {
    "id": _TEXT,
    "object": {"const": "response"},
    "created_at": _WHOLE,
    "completed_at": _MAYBE_WHOLE,
    "status": {"enum": ["completed", "failed", "in_progress", "cancelled", "queued", "incomplete"]},
    "incomplete_details": _MAYBE_OBJECT,
    "model": _TEXT,
    "previous_response_id": _MAYBE_TEXT,
    "instructions": {"type": ["string", "array", "null"]},
    "output": {"type": "array", "items": {"anyOf": [_MESSAGE, _CALL]}},
    "error": _MAYBE_OBJECT,
    "tools": {"type": "array", "items": {"required": ["type", "name", "description", "parameters", "strict"]}},
    "tool_choice": {"type": ["string", "object"]},
    "truncation": {"enum": ["auto", "disabled"]},
    "parallel_tool_calls": _FLAG,
    "text": {"type": "object", "required": ["format"]},
    "top_p": _NUMBER,
    "presence_penalty": _NUMBER,
    "frequency_penalty": _NUMBER,
    "top_logprobs": _WHOLE,
    "temperature": _NUMBER,
    "reasoning": _MAYBE_OBJECT,
    "user": _MAYBE_TEXT,
    "usage": {
        "type": ["object", "null"],
        "required": ["input_tokens", "output_tokens", "total_tokens", "input_tokens_details", "output_tokens_details"],
        "properties": {"input_tokens_details": _COUNTS, "output_tokens_details": _COUNTS},
    },
    "max_output_tokens": _MAYBE_WHOLE,
    "max_tool_calls": _MAYBE_WHOLE,
    "store": _FLAG,
    "background": _FLAG,
    "service_tier": _TEXT,
    "metadata": {"type": "object"},
    "safety_identifier": _MAYBE_TEXT,
    "prompt_cache_key": _MAYBE_TEXT,
}
RESPONSE = {"type": "object", "required": [*_FIELDS], "properties": _FIELDS}

STATUS = {
    "type": "function",
    "name": "order_status",
    "description": "Where an order is.",
    "parameters": {"type": "object", "properties": {"order_number": _TEXT}, "required": ["order_number"]},
}
CASES: dict[str, dict[str, Any]] = {
    "a message": {"input": [{"type": "message", "role": "user", "content": "Hello!"}]},
    "a system message": {
        "input": [
            {"type": "message", "role": "system", "content": "You are a pirate."},
            {"type": "message", "role": "user", "content": "Hello!"},
        ]
    },
    "a tool": {
        "input": [{"type": "message", "role": "user", "content": "Where is my order 48213?"}],
        "tools": [STATUS],
    },
    "several turns": {
        "input": [
            {"type": "message", "role": "user", "content": "My name is Nina."},
            {"type": "message", "role": "assistant", "content": "Hello Nina!"},
            {"type": "message", "role": "user", "content": "What is my name?"},
        ]
    },
}


def judge(response: dict[str, Any], case: str) -> None:
    jsonschema.validate(response, RESPONSE)
    assert response["status"] == "completed"
    assert response["completed_at"] >= response["created_at"]
    assert [item["type"] for item in response["output"]] == ["function_call" if case == "a tool" else "message"]
    if case == "several turns":
        assert "Nina" in response["output"][0]["content"][0]["text"]


@pytest.mark.parametrize("case", CASES)
async def test_a_response_has_the_form_of_the_standard(http: httpx.AsyncClient, case: str) -> None:
    reply = await http.post("/v1/responses", json={"model": "demo", "stream": False, **CASES[case]})
    assert reply.status_code == 200, reply.text
    judge(reply.json(), case)


@pytest.mark.parametrize("case", ["a message", "a tool"])
async def test_a_stream_has_typed_events_and_ends_in_the_response(http: httpx.AsyncClient, case: str) -> None:
    body = {"model": "demo", "stream": True, **CASES[case]}
    async with http.stream("POST", "/v1/responses", json=body) as reply:
        assert reply.headers["content-type"].startswith("text/event-stream")
        events = [one.event async for one in blocks(reply)]
    kinds = [one["type"] for one in events]
    assert (kinds[0], kinds[-1]) == ("response.created", "response.completed")
    judge(events[-1]["response"], case)
    for one in events:
        if "response" in one:
            jsonschema.validate(one["response"], RESPONSE)
    added = [one["item"]["type"] for one in events if one["type"] == "response.output_item.added"]
    assert added == [item["type"] for item in events[-1]["response"]["output"]]
    if case == "a tool":
        assert {"response.function_call_arguments.delta", "response.function_call_arguments.done"} <= {*kinds}
        arguments = next(one["arguments"] for one in events if one["type"] == "response.function_call_arguments.done")
        assert json.loads(arguments) == {"order_number": "48213"}


async def test_an_image_is_refused_by_name(http: httpx.AsyncClient) -> None:
    """The one case that is not served: no model here sees images."""
    parts = [
        {"type": "input_text", "text": "What is this?"},
        {"type": "input_image", "image_url": "data:image/png;base64,"},
    ]
    reply = await http.post("/v1/responses", json={"model": "demo", "input": [{"role": "user", "content": parts}]})
    assert (reply.status_code, "images" in reply.json()["error"]["message"]) == (400, True)
