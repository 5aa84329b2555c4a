"""Messages with calls of tools, as chat templates expect them.

A template that knows no tools gets them as text: a description of the tools at the end of the system message, calls in
the model's form, and results as messages of the user.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from models.interface.chat import ChatMessage
from models.tools.format import ToolFormat

MOST_LEVELS = 64
RESULT_MARK = "Result of the tool:"
"""What precedes a result where a template knows none; no other text may have it."""
_INTRODUCTION = "You can call tools. To call one, reply with {example} and nothing else. The tools are:"


def described(
    message: ChatMessage,
    clean: Callable[[str], str],
    clean_call: Callable[[str], str],
    *,
    short_ids: bool = False,
    json_arguments: bool = False,
) -> dict[str, Any]:
    """The message as a chat template expects it; `clean` is applied to its text, `clean_call` to all others.

    short_ids: Calls have ids of nine letters and digits, as Mistral's templates require.
    json_arguments: The arguments are JSON text.
    """
    id_of = _short if short_ids else clean_call
    rendered: dict[str, Any] = {"role": message.role, "content": clean(message.content)}
    if message.calls:
        rendered["tool_calls"] = [
            {
                "id": id_of(call.id),
                "type": "function",
                "function": {
                    "name": clean_call(call.name),
                    "arguments": _arguments(call.arguments, clean_call, json_arguments),
                },
            }
            for call in message.calls
        ]
    if message.call_id:
        rendered["tool_call_id"] = id_of(message.call_id)
    if message.name:
        rendered["name"] = clean_call(message.name)
    return rendered


def introduced(tools: Sequence[dict[str, Any]], form: ToolFormat) -> str:
    """The description of the tools, which are as templates expect them, for a template that knows none."""
    return "\n".join([_INTRODUCTION.format(example=form.example), *(json.dumps(tool["function"]) for tool in tools)])


def result_as_text(message: dict[str, Any]) -> str:
    return f"{RESULT_MARK} {message['content']}"


def with_calls_as_text(message: dict[str, Any], form: ToolFormat) -> str:
    calls = [(call["function"]["name"], _as_json(call["function"]["arguments"])) for call in message["tool_calls"]]
    text = form.written(calls)
    return f"{message['content']}\n{text}" if message["content"] else text


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


def _arguments(arguments: str, clean: Callable[[str], str], as_json: bool) -> Any:
    parsed = _parsed(arguments, clean)
    return json.dumps(parsed, ensure_ascii=False) if as_json and not isinstance(parsed, str) else parsed


def _as_json(arguments: Any) -> str:
    return json.dumps(arguments)


def _parsed(arguments: str, clean: Callable[[str], str]) -> Any:
    """Templates print an object as JSON, and a string as a string: one that models and templates cannot read as JSON,
    because it is none or is nested too deeply.
    """
    try:
        return clean_json(msgspec.json.decode(arguments or "{}"), clean)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return clean(arguments)


def _short(call_id: str) -> str:
    if len(call_id) == 9 and call_id.isalnum():
        return call_id
    return hashlib.blake2b(call_id.encode(), digest_size=8).hexdigest()[:9]
