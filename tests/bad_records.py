"""Records of `requests` that break the contract, each with what its sender gets."""

from __future__ import annotations

import json
from dataclasses import dataclass


@dataclass(frozen=True)
class Bad:
    """`value` and `key` with `USER` for the user; `is_reported` where the sender gets an error event."""

    name: str
    value: bytes | None
    key: bytes | None = b"USER"
    is_reported: bool = True

    def of(self, user: str, request_id: str) -> tuple[bytes | None, bytes | None]:
        """Key and value for this user and request id."""
        value = self.value and self.value.replace(b"USER", user.encode()).replace(b"bad-1", request_id.encode())
        return self.key and self.key.replace(b"USER", user.encode()), value


def record(**fields: object) -> bytes:
    given = {"request_id": "bad-1", "user_id": "USER", "prompt": "hello", **fields}
    return json.dumps({name: value for name, value in given.items() if value is not ...}).encode()


BAD = [
    Bad("not UTF-8", b"\xff\xfe\xfd", is_reported=False),
    Bad("not JSON", b"hello", is_reported=False),
    Bad("truncated JSON", b'{"request_id": "bad-1", "user_id": "USER"', is_reported=False),
    Bad("NaN", b'{"request_id": "bad-1", "user_id": "USER", "prompt": "x", "temperature": NaN}'),
    Bad("a lone surrogate", b'{"request_id": "bad-1", "user_id": "USER", "prompt": "\\ud800"}'),
    Bad("not an object", b'["bad-1"]', is_reported=False),
    Bad("no value", None, is_reported=False),
    Bad("an empty value", b"", is_reported=False),
    Bad(
        "nesting too deep",
        record(metadata=...)[:-1] + b', "metadata": ' + b'{"a":' * 500 + b"1" + b"}" * 501,
    ),
    Bad("a request_id with a blank", record(request_id="a b"), is_reported=False),
    Bad("a request_id that is too long", record(request_id="x" * 65), is_reported=False),
    Bad("a wrong type", record(max_tokens="many")),
    Bad("a boolean for a number", record(max_tokens=True)),
    Bad("another user than the key", record(user_id="another-user")),
    Bad("no key", record(), key=None),
    Bad("no prompt", record(prompt=...)),
    Bad("an empty prompt", record(prompt="")),
    Bad("both prompt and messages", record(messages=[{"role": "user", "content": "hi"}])),
    Bad("no messages", record(prompt=..., messages=[])),
    Bad("a tool without a name", record(tools=[{"type": "function", "function": {}}])),
    Bad("a choice among no tools", record(tool_choice="required")),
    Bad("a result without its call", record(prompt=..., messages=[{"role": "tool", "content": "hi"}])),
    Bad("a token id that is none", record(prompt=..., prompt_token_ids=[2**40])),
    Bad("a parameter that is not supported", record(n=3)),
    Bad("a parameter that is not supported and no number", record()[:-1] + b', "n": 1e999}'),
    Bad("a parameter that is not supported with 5,000 digits", record()[:-1] + b', "n": ' + b"1" * 5000 + b"}"),
    Bad("an unknown field with 5,000 digits", record()[:-1] + b', "unknown": [' + b"1" * 5000 + b"]}"),
    Bad("metadata with 400 digits", record()[:-1] + b', "metadata": {"a": ' + b"1" * 400 + b"}}"),
    Bad(
        "arguments of a call that nest too deeply",
        record(
            prompt=...,
            messages=[
                {"role": "user", "content": "hi"},
                {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "[" * 600}}]},
                {"role": "tool", "tool_call_id": "c", "content": "x"},
            ],
        ),
    ),
    Bad(
        "a tool with a number of 400 digits",
        record(tools=[{"function": {"name": "f", "parameters": {"multipleOf": int("1" * 400)}}}]),
    ),
    Bad("an unknown priority", record(priority="urgent")),
    Bad("max_tokens 0", record(max_tokens=0)),
    Bad("a negative temperature", record(temperature=-1)),
    Bad("a temperature out of range", record(temperature=99)),
    Bad("a top_p out of range", record(top_p=7)),
]
