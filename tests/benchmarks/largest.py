"""The largest requests of each kind that a caller may send: each is legitimate, and one caller sends one at a time."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

_HI = {"role": "user", "content": "hi"}
_VALUES = " ".join(f"My colleague {number} has the address person{number}@example.com." for number in range(500))
_SCHEMA = {"type": "object", "properties": {f"p{number}": {"type": "string"} for number in range(8)}}
_TOOLS = [
    {"type": "function", "function": {"name": f"tool_{number}", "description": "d" * 200, "parameters": _SCHEMA}}
    for number in range(128)
]
_CALL = {"id": "c", "type": "function", "function": {"name": "tool_0", "arguments": "{}"}}


def _chat(*messages: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"messages": [*messages], "max_tokens": 4, **fields}


LARGEST: MappingProxyType[str, dict[str, Any]] = MappingProxyType({
    "megabyte_of_messages": _chat(*[{"role": "user", "content": "word " * 100}] * 1900),
    "longest_prompt": _chat({"role": "user", "content": "word " * 13_000}),
    "2048_messages": _chat(*[{"role": "user", "content": "word " * 5}] * 2048),
    "128_tools": _chat(_HI, tools=_TOOLS),
    "largest_result": _chat(
        _HI,
        {"role": "assistant", "tool_calls": [_CALL]},
        {"role": "tool", "tool_call_id": "c", "content": '{"word": "' + "word " * 13_000 + '"}'},
        tools=_TOOLS[:1],
    ),
    "500_private_values": _chat({"role": "user", "content": _VALUES}),
})  # fmt: skip
