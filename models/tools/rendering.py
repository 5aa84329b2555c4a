"""Messages with calls of tools, as chat templates expect them.

A template that knows no tools gets them as text: a description of the tools at the end of the system message, calls in
the form of `json`, and results as messages of the user.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from models.chat import ChatMessage
from models.tools.format import FORMATS, ToolFormat

MOST_LEVELS = 64
_INTRODUCTION = "You can call tools. To call one, reply with {example} and nothing else. The tools are:"


def described(message: ChatMessage, form: ToolFormat, clean: Callable[[str], str]) -> dict[str, Any]:
    """The message as a chat template expects it; `clean` is applied to all texts of users."""
    found: dict[str, Any] = {"role": message.role, "content": clean(message.content)}
    if message.calls:
        found["tool_calls"] = [
            {
                "id": _id_for(call.id, form),
                "type": "function",
                "function": {"name": clean(call.name), "arguments": _parsed(call.arguments, clean)},
            }
            for call in message.calls
        ]
    if message.call_id:
        found["tool_call_id"] = _id_for(message.call_id, form)
    if message.name:
        found["name"] = clean(message.name)
    return found


def without_tools(
    talk: list[dict[str, Any]], tools: Sequence[dict[str, Any]], form: ToolFormat
) -> list[dict[str, Any]]:
    """The same messages for a template that knows no tools; `tools` are as templates expect them."""
    plain = [_plain(message, form) for message in talk]
    if not tools:
        return plain
    example = f'{form.trigger}{form.opening}"NAME"{form.middle}{{...}}{form.closing}{form.end}'
    lines = [_INTRODUCTION.format(example=example), *(json.dumps(tool["function"]) for tool in tools)]
    text = "\n".join(lines)
    first = next((message for message in plain if message["role"] == "system"), None)
    if first is None:
        return [{"role": "system", "content": text}, *plain]
    first["content"] = f"{first['content']}\n\n{text}"
    return plain


def clean_json(value: Any, clean: Callable[[str], str], levels: int = MOST_LEVELS) -> Any:
    """The JSON value with `clean` applied to all its strings, keys included.

    Raises `ValueError` for one that is nested too deeply.
    """
    if isinstance(value, str):
        return clean(value)
    if not isinstance(value, dict | list):
        return value
    if not levels:
        raise ValueError(f"nested deeper than {MOST_LEVELS} levels")
    if isinstance(value, dict):
        return {clean(key): clean_json(one, clean, levels - 1) for key, one in value.items()}
    return [clean_json(one, clean, levels - 1) for one in value]


def _plain(message: dict[str, Any], form: ToolFormat) -> dict[str, Any]:
    if message["role"] == "tool":
        return {"role": "user", "content": f"Result of the tool: {message['content']}"}
    if calls := message.get("tool_calls"):
        written = form.separator.join(
            f"{json.dumps(call['function']['name'])}{form.middle}{json.dumps(call['function']['arguments'])}"
            f"{form.closing}"
            for call in calls
        )
        text = f"{form.trigger}{form.opening}{written}{form.end}"
        return {"role": message["role"], "content": f"{message['content']}\n{text}" if message["content"] else text}
    return {"role": message["role"], "content": message["content"]}


def _parsed(arguments: str, clean: Callable[[str], str]) -> Any:
    """Templates print an object as JSON, and a string as a string: one that models and templates cannot read as JSON,
    because it is none or is nested too deeply.
    """
    try:
        return clean_json(msgspec.json.decode(arguments or "{}"), clean)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return clean(arguments)


def _id_for(call_id: str, form: ToolFormat) -> str:
    """Mistral's templates require ids of nine letters and digits."""
    if form is not FORMATS["mistral"] or (len(call_id) == 9 and call_id.isalnum()):
        return call_id
    return hashlib.blake2b(call_id.encode(), digest_size=8).hexdigest()[:9]
