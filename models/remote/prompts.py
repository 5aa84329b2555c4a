"""Conversations as the messages of a chat completion.

A prompt's token ids are the bytes of this JSON object: `{"messages": [...]}`, with `"continues": true` if the answer
continues the last message; or `{"prompt": "..."}` for a raw prompt.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from models.interface.chat import ChatMessage, PastTurn
from models.prompts.builder import BuiltPrompt, PromptError, PromptOptions, PromptTooLong, turns_and_messages
from models.prompts.chat_template import TemplateValue
from models.text.reasoning import Reasoning
from models.tools.forms import FORMATS


class RemotePrompts:
    """Implements `models.served.registry.Prompts`. `context_length` counts bytes."""

    tool_format = FORMATS["json"]
    tool_marker: int | None = None
    has_single_calls = False

    def __init__(self, memory_turns: int, context_length: int) -> None:
        self._memory_turns = memory_turns
        self._context_length = context_length

    def build(
        self,
        system: str,
        memory: Sequence[PastTurn | tuple[str, str]] = (),
        prompt: str | None = None,
        messages: Sequence[ChatMessage] | None = None,
        **how: Unpack[PromptOptions],
    ) -> BuiltPrompt:
        if how.get("template_values"):
            raise PromptError("chat_template_kwargs: this model is behind an outside server, whose template is its own")
        if how.get("tools"):
            raise PromptError("tools: this model is behind an outside server, which gets no tools")
        turns, last = turns_and_messages(memory, prompt, messages, how, self._memory_turns)
        has_system = any(message.role == "system" for message in last)
        first = [ChatMessage("system", system)] if system and not has_system else []
        while True:
            past = [message for turn in turns for message in turn.messages]
            content: dict[str, Any] = {"messages": [_described(one) for one in (*first, *past, *last)]}
            if how.get("continues"):
                content["continues"] = True
            ids = _ids(content)
            if len(ids) + how.get("reserve", 1) <= self._context_length or not turns:
                return self._of(ids, len(turns))
            turns = turns[1:]

    def values_of_effort(self, effort: str) -> Mapping[str, TemplateValue]:
        if effort == "none":
            return {}
        raise PromptError("reasoning_effort: this model is behind an outside server, which is not asked for it")

    def count(self, text: str) -> int:
        return len(text.encode())

    def ids_of(self, text: str, begins: Reasoning | None = None) -> Sequence[int]:  # noqa: ARG002 - its text is all
        return text.encode()

    def raw(self, text: str) -> BuiltPrompt:
        return self._of(_ids({"prompt": text}), 0)

    def of_ids(self, ids: Sequence[int]) -> BuiltPrompt:  # noqa: ARG002
        raise PromptError("prompt_token_ids: this model is behind an outside server, which takes text only")

    def _of(self, ids: bytes, turns: int) -> BuiltPrompt:
        if len(ids) >= self._context_length:
            raise PromptTooLong(f"the prompt has {len(ids)} bytes; this model takes {self._context_length - 1} at most")
        return BuiltPrompt(tuple(ids), turns, hashlib.blake2b(ids, digest_size=8).hexdigest())


def _ids(content: dict[str, Any]) -> bytes:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")


def _described(message: ChatMessage) -> dict[str, Any]:
    """The message in OpenAI's form."""
    rendered: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.calls:
        rendered["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.calls
        ]
    if message.call_id:
        rendered["tool_call_id"] = message.call_id
    return rendered
