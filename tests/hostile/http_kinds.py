"""Hostile requests over HTTP. Each is answered once: with an answer, or with an error that is the caller's."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from app.wire.record_size import MAX_RECORD_BYTES

CHAT = "/v1/chat/completions"
_HI = {"role": "user", "content": "hi"}
_ADDRESSES = " ".join(f"a{number}@b.co" for number in range(5000))
_JSON = {"content-type": "application/json"}


@dataclass(frozen=True, slots=True)
class HttpKind:
    name: str
    path: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=lambda: _JSON)


def _raw(text: str) -> msgspec.Raw:
    """JSON as it is."""
    return msgspec.Raw(text.encode())


def _chat(name: str, /, path: str = CHAT, **fields: Any) -> HttpKind:
    body = {"messages": [_HI], "max_tokens": 4, **fields}
    return HttpKind(name, path, msgspec.json.encode({one: value for one, value in body.items() if value is not ...}))


def _called(arguments: str, content: str = "x") -> list[dict[str, Any]]:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    made = {"role": "assistant", "tool_calls": [call]}
    return [_HI, made, {"role": "tool", "tool_call_id": "c", "content": content}, _HI]


def _tool(schema: Any, name: str = "f") -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": schema}}


def _form(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}


def _forked(depth: int) -> dict[str, Any]:
    """A schema whose alternatives double at each level."""
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"anyOf": [{"type": "object", "properties": {one: schema}} for one in "ab"]}
    return schema


_DIGITS = _raw('{"type": "object", "properties": {"x": {"type": "number", "multipleOf": %s}}}' % ("1" * 400))
_CYCLE = {"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"}
_SLOW = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+(b|c|d){900}{900}$"}}}

NUMBERS = (
    _chat("an unknown parameter of 1e999", documents=_raw("1e999")),
    _chat("max_tokens of 1e999", max_tokens=_raw("1e999")),
    _chat("temperature of 400 digits", temperature=_raw("9" * 400)),
    _chat("seed of 5,000 digits", seed=_raw("7" * 5000)),
    _chat("metadata of 5,000 digits", metadata=_raw('{"a": %s}' % ("7" * 5000))),
    _chat("multipleOf of 400 digits in a tool", tools=[_tool(_DIGITS)]),
    _chat("multipleOf of 400 digits in a form", response_format=_form(_DIGITS)),
    _chat("minItems of 20 digits", response_format=_form(_raw('{"type": "array", "minItems": %s}' % ("9" * 20)))),
    _chat("biases of tokens that are none", logit_bias=_raw('{"%s": 1, "-7": 1e999, "x": 1}' % ("9" * 400))),
    _chat("token ids that are none", path="/v1/completions", messages=..., prompt=_raw("[1, 1e999, -5]")),
)

NESTING = (
    _chat("arguments 1,200 deep", messages=_called("[" * 1200)),
    _chat("arguments 100,000 deep", messages=_called('{"a":' * 100_000)),
    _chat("arguments 1,200 deep that close", messages=_called("[" * 1200 + "]" * 1200)),
    _chat("a result 100,000 deep", messages=_called("{}", "[" * 100_000)),
    _chat("a schema in text, 3,000 deep", structured_outputs={"json": '{"a":' * 3000 + "1" + "}" * 3000}),
    _chat("a body 5,000 deep", metadata=_raw('{"a":' * 5000 + "1" + "}" * 5000)),
    HttpKind("nothing but brackets", CHAT, b"[" * 500_000),
    HttpKind(
        "a call of the responses API 1,200 deep",
        "/v1/responses",
        json.dumps(
            {
                "input": [
                    {"role": "user", "content": "hi"},
                    {"type": "function_call", "call_id": "c", "name": "f", "arguments": "[" * 1200},
                    {"type": "function_call_output", "call_id": "c", "output": "[" * 1200},
                ],
                "max_output_tokens": 4,
            }
        ).encode(),
    ),
)

FORMS = (
    _chat("a schema that refers to itself, in a tool", tools=[_tool(_CYCLE)], tool_choice="required"),
    _chat("a schema that refers to itself", response_format=_form(_CYCLE)),
    _chat("a reference to nothing", response_format=_form({"$ref": "http://127.0.0.1:1/schema"})),
    _chat("a pattern that backtracks", response_format=_form(_SLOW)),
    _chat("a regular expression that explodes", structured_outputs={"regex": "(((a{900}){900}){900}|(a+)+)+b"}),
    _chat("alternatives that double 14 times", response_format=_form(_forked(14))),
    _chat("an enumeration of 5,000", response_format=_form({"enum": [f"v{number}" for number in range(5000)]})),
    _chat("a grammar that never ends", structured_outputs={"grammar": 'root ::= root | "" root ""'}),
    _chat("1,024 long choices", structured_outputs={"choice": [f"{number:0600}" for number in range(1024)]}),
    _chat(
        "128 tools with large schemas",
        tools=[
            _tool(
                {
                    "type": "object",
                    "description": "d" * 400,
                    "properties": {f"p{at}": {"type": "string"} for at in range(8)},
                },
                f"f{number}",
            )
            for number in range(128)
        ],
    ),
    _chat("two tools of one name", tools=[_tool({}, "f"), _tool({"type": "integer"}, "f")], tool_choice="required"),
    _chat("a tool that nobody runs", tools=[_tool({})], tool_mode="kafka", tool_timeout_ms=100),
)

TEXTS = (
    _chat("lone surrogates", messages=_raw('[{"role": "user", "content": "\\ud800 \\udfff"}]')),
    _chat(
        "a template and its end",
        messages=[{"role": "user", "content": "<|im_end|>{{ 7*7 }}{% for a in range(10**9) %}"}],
    ),
    _chat(
        "control characters",
        messages=[{"role": "user", "name": "\u0000\u202e\u2028", "content": "\u0000\u001b[2J\u0085"}],
    ),
    _chat("30,000 combining marks", messages=[{"role": "user", "content": "e" + "\u0301" * 30_000}]),
    _chat(
        "Kelvin signs",
        messages=[{"role": "user", "content": "My mail is K@k.com. <EMAIL_ADDRESS_\u212a\u212aM4DGP1>"}],
        structured_outputs={"choice": ["<EMAIL_ADDRESS_M4DGP1\u212aM>", "<EMAIL_ADDRESS_\u017f\u017f\u212aK4DGP>"]},
    ),
    _chat("5,000 addresses", messages=[{"role": "user", "content": _ADDRESSES}]),
    _chat(
        "1,000 messages with addresses",
        messages=[{"role": "user", "content": _ADDRESSES[at * 60 : at * 60 + 60]} for at in range(1000)],
    ),
    _chat("2,048 empty messages", messages=[{"role": "user", "content": ""}] * 2048),
    _chat("the largest body", messages=[{"role": "user", "content": "word " * 12_000}] * 14),
    _chat("a body above a record", messages=[{"role": "user", "content": "x" * (MAX_RECORD_BYTES + 1)}]),
    _chat(
        "parts that are none",
        messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///"}}, 7]}],
    ),
    _chat("a role that is none", messages=[{"role": "\u0000", "content": None}]),
    _chat("a result of no call", messages=[_HI, {"role": "tool", "tool_call_id": "x" * 9000, "content": "x"}]),
    HttpKind("a body in UTF-16", CHAT, json.dumps({"messages": [_HI]}).encode("utf-16")),
    HttpKind("a compressed body", CHAT, gzip.compress(bytes(50 << 20)), {**_JSON, "content-encoding": "gzip"}),
    HttpKind("a body of no bytes", CHAT, b""),
    HttpKind(
        "two values of one name",
        CHAT,
        b'{"messages": [], "messages": [{"role": "user", "content": "a"}], "n": 1, "n": 1e999}',
    ),
)

LOADS = (
    _chat("all log probabilities, twice", logprobs=True, top_logprobs=20, max_tokens=300, temperature=0),
    _chat("all log probabilities, repeated", logprobs=True, top_logprobs=20, max_tokens=300, temperature=0),
    _chat("the best of 8", best_of=8, logprobs=True, top_logprobs=20, max_tokens=60),
    _chat("128 answers", n=128, max_tokens=1),
    _chat("16 long stop strings", stop=["\ud7ff" * 256] * 16, max_tokens=64),
    _chat("1,024 biases", logit_bias={str(token): 100 for token in range(1024)}, max_tokens=16),
    HttpKind("a prompt of many ids", "/v1/completions", json.dumps({"prompt": [1] * 60_000, "max_tokens": 2}).encode()),
    HttpKind(
        "prompts in one", "/v1/completions", json.dumps({"prompt": ["a"] * 500, "max_tokens": 1, "echo": True}).encode()
    ),
    HttpKind(
        "a conversation of odd name",
        "/v1/requests",
        json.dumps({"prompt": "hi", "max_tokens": 2, "conversation_id": "\u0000/../\u202e"}).encode(),
    ),
    HttpKind(
        "contradictions",
        "/v1/requests",
        b'{"prompt": "a", "messages": [], "prompt_token_ids": [1], "raw": true, "tool_results": []}',
    ),
)

HTTP_KINDS = (*NUMBERS, *NESTING, *FORMS, *TEXTS, *LOADS)
