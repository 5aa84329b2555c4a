"""The plain way of what a chat template cannot render: text instead of tools, calls and results, and joined messages.

Every step leaves messages alone that the template renders, so that the prompt of a model whose template has everything
is the template's own rendering of the messages as they are.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any

from models.prompts.template_features import Message, TemplateFeatures, ToolsIn
from models.tools.format import ToolFormat
from models.tools.rendering import introduced, result_as_text, with_calls_as_text

NOT_RUN = "not run"
"""The result of a call that has none."""


def plainest(features: TemplateFeatures) -> Iterator[TemplateFeatures]:
    """What remains to try with messages that the template refuses in spite of its features."""
    plain = dataclasses.replace(features, calls=False, systems=False, later_system=False, neighbours=False)
    yield plain
    yield dataclasses.replace(plain, system=False, tools=ToolsIn.TEXT)


def shaped(
    talk: Sequence[Message], tools: Sequence[dict[str, Any]], features: TemplateFeatures, form: ToolFormat
) -> list[Message]:
    """The messages as the template renders them."""
    shape = with_calls(talk, features) if features.calls else [_as_text(message, form) for message in talk]
    if tools and features.tools is ToolsIn.TEXT:
        shape = _introduce(shape, introduced(tools, form))
    elif tools and features.tools is ToolsIn.SYSTEM_MESSAGE:
        shape = in_system(shape, tools)
    shape = _with_systems(shape, features)
    return shape if features.neighbours else joined(shape)


def with_calls(talk: Sequence[Message], features: TemplateFeatures) -> list[Message]:
    """Every message with calls, followed by the results that the template asks for."""
    if features.open_calls and features.several_calls and features.unanswered:
        return list(talk)
    plain: list[Message] = []
    waiting = list(talk)
    while waiting:
        message = waiting.pop(0)
        if not message.get("tool_calls"):
            plain.append(message)
            continue
        results = list(takewhile(lambda one: one["role"] == "tool", waiting))
        del waiting[: len(results)]
        if waiting and not features.open_calls:
            results += _missing(message, results)
        plain += _one_each(message, results) if not features.several_calls else [message, *results]
        if results and waiting and waiting[0]["role"] == "user" and not features.unanswered:
            plain.append({"role": "assistant", "content": ""})
    return plain


def joined(talk: Sequence[Message]) -> list[Message]:
    """Neighbours of one role as one message."""
    plain: list[Message] = []
    for message in talk:
        last = plain[-1] if plain else None
        if last is not None and last["role"] == message["role"] and _is_text(last) and _is_text(message):
            plain[-1] = {**last, "content": "\n\n".join(filter(None, (last["content"], message["content"])))}
        else:
            plain.append(message)
    return plain


def begun_by_user(talk: list[Message]) -> list[Message]:
    """The same with a user's message, be it empty, before the first of an assistant: for templates that count turns."""
    first = next((at for at, message in enumerate(talk) if message["role"] != "system"), len(talk))
    if first < len(talk) and talk[first]["role"] == "user":
        return talk
    return [*talk[:first], {"role": "user", "content": ""}, *talk[first:]]


def in_system(talk: list[Message], tools: Sequence[dict[str, Any]]) -> list[Message]:
    """The same with the tools in the system message's key."""
    written = json.dumps([tool["function"] for tool in tools], ensure_ascii=False)
    if talk and talk[0]["role"] == "system":
        return [{**talk[0], "tools": written}, *talk[1:]]
    return [{"role": "system", "content": "", "tools": written}, *talk]


def _missing(message: Message, results: Sequence[Message]) -> list[Message]:
    known = {one.get("tool_call_id") for one in results}
    return [
        {"role": "tool", "content": NOT_RUN, "tool_call_id": call["id"]}
        for call in message["tool_calls"]
        if call["id"] not in known
    ]


def _one_each(message: Message, results: list[Message]) -> list[Message]:
    """One message for each call, followed by its result; results of no call follow the last."""
    plain: list[Message] = []
    left = list(results)
    for number, call in enumerate(message["tool_calls"]):
        content = message["content"] if number == 0 else ""
        own = [one for one in left if one.get("tool_call_id") == call["id"]]
        left = [one for one in left if one.get("tool_call_id") != call["id"]]
        plain += [{**message, "content": content, "tool_calls": [call]}, *own]
    return [*plain, *left]


def _as_text(message: Message, form: ToolFormat) -> Message:
    if message["role"] == "tool":
        return {"role": "user", "content": result_as_text(message)}
    if message.get("tool_calls"):
        return {"role": message["role"], "content": with_calls_as_text(message, form)}
    return {"role": message["role"], "content": message["content"]}


def _introduce(talk: list[Message], text: str) -> list[Message]:
    first = next((at for at, message in enumerate(talk) if message["role"] == "system"), None)
    if first is None:
        return [{"role": "system", "content": text}, *talk]
    content = f"{talk[first]['content']}\n\n{text}"
    return [*talk[:first], {**talk[first], "content": content}, *talk[first + 1 :]]


def _with_systems(talk: list[Message], features: TemplateFeatures) -> list[Message]:
    systems = [message for message in talk if message["role"] == "system"]
    if not systems:
        return talk
    others = [message for message in talk if message["role"] != "system"]
    if not features.system:
        return _in_first_user(others, "\n".join(message["content"] for message in systems))
    leading = len(list(takewhile(lambda message: message["role"] == "system", talk)))
    is_rendered = (leading < 2 or features.systems) and (leading == len(systems) or features.later_system)
    if is_rendered:
        return talk
    keys = {key: value for message in reversed(systems) for key, value in message.items()}
    return [{**keys, "content": "\n\n".join(message["content"] for message in systems)}, *others]


def _in_first_user(talk: list[Message], instructions: str) -> list[Message]:
    first = next((at for at, message in enumerate(talk) if message["role"] == "user"), None)
    if first is None:
        return [{"role": "user", "content": instructions}, *talk]
    content = f"{instructions}\n\n{talk[first]['content']}"
    return [*talk[:first], {"role": "user", "content": content}, *talk[first + 1 :]]


def _is_text(message: Message) -> bool:
    return message["role"] in {"user", "assistant", "system"} and not message.get("tool_calls")
