"""Chunks in the shapes that servers give them beside OpenAI's.

- The content is a list of parts (Mistral, LiteLLM before Anthropic): their texts are joined. What a model thinks is
  another part, and stays apart.
- `choices` is null, missing, or one object; a choice has no `delta`; a whole answer has a `message`.
- A text is cut within a surrogate pair, or within the UTF-8 of a character.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from models.remote.chunk import MOST_COUNTED, Chunk, ChunkChoice, ChunkDelta
from models.remote.http import ServerMisbehaved

_TEXTS = frozenset({None, "text", "output_text"})


def lenient_chunk(data: bytes, note: Callable[[str], None] = lambda _what: None) -> Chunk:
    """Raises `ServerMisbehaved` for what is none. Its texts may have halves of surrogate pairs (`whole_text`)."""
    try:
        value = json.loads(data.decode(errors="replace"))
    except (ValueError, RecursionError):
        raise ServerMisbehaved("a chunk is no JSON") from None
    if not isinstance(value, dict):
        raise ServerMisbehaved(f"a chunk is {_named(value)}")
    choices = value.get("choices")
    if isinstance(choices, dict):
        note("one choice without a list")
        choices = [choices]
    made = [_choice(one, note) for one in choices if isinstance(one, dict)] if isinstance(choices, list) else None
    return Chunk(made, **{name: value.get(name) for name in Chunk.__struct_fields__ if name != "choices"})


def whole_text(text: str, *, is_last: bool) -> tuple[str, str]:
    """The text with pairs of surrogates as characters, and half a pair at its end, unless it `is_last`."""
    half = "" if is_last or not "\ud800" <= text[-1:] <= "\udbff" else text[-1]
    whole = text[: len(text) - len(half)]
    return whole.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace"), half


def _choice(value: dict[str, Any], note: Callable[[str], None]) -> ChunkChoice:
    said = next((one for one in (value.get("delta"), value.get("message")) if isinstance(one, dict)), {})
    content = said.get("content")
    if not isinstance(content, str | None):
        note(f"content as {_named(content)}")
    names = ("reasoning_content", "reasoning", "reasoning_details")
    delta = ChunkDelta(_text(content), *(said.get(name) for name in names))
    if isinstance(content, list | dict) and content and not delta.content:
        delta.reasoning = True
    text = value.get("text")
    if not said and isinstance(text, str):
        delta.content = text
    return ChunkChoice(delta, None, _reason(value.get("finish_reason")), _ids(value.get("token_ids")))


def _text(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list | dict):
        raise ServerMisbehaved(f"the content of a chunk is {_named(content)}")
    return "".join(_part(one) for one in (content if isinstance(content, list) else [content]))


def _part(part: Any) -> str:
    if isinstance(part, dict):
        part = part.get("text") if part.get("type") in _TEXTS else None
    return part if isinstance(part, str) else ""


def _reason(value: Any) -> str | None:
    """SGLang's own API has `{"type": "stop"}`."""
    if isinstance(value, dict):
        value = value.get("type")
    return None if value is None or value is False else str(value)


def _ids(value: Any) -> list[int] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(type(one) is int and 0 <= one <= MOST_COUNTED for one in value):
        raise ServerMisbehaved("the token ids of a chunk are none")
    return value


def _named(value: Any) -> str:
    """The type of a JSON value, for the log."""
    names = {dict: "an object", list: "a list", str: "a text", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")
