"""A chunk of a streamed completion: what of OpenAI's fields is read."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

MOST_COUNTED = 2**31 - 1


class ChunkDelta(msgspec.Struct):
    """The names under which servers send thinking are OpenAI's neighbours': DeepSeek's, and OpenRouter's two."""

    content: str | None = None
    reasoning_content: Any = None
    reasoning: Any = None
    reasoning_details: Any = None

    @property
    def thinks(self) -> bool:
        return bool(self.reasoning_content or self.reasoning or self.reasoning_details)


class ChunkChoice(msgspec.Struct):
    """`delta` of a chat completion, `text` of a raw one."""

    delta: ChunkDelta | None = None
    text: str | None = None
    finish_reason: str | None = None
    token_ids: list[Annotated[int, msgspec.Meta(ge=0, le=MOST_COUNTED)]] | None = None

    @property
    def content(self) -> str:
        return (self.text if self.delta is None else self.delta.content) or ""


class Chunk(msgspec.Struct):
    """`usage` is whatever the server sends under that name; Groq's older models send it in `x_groq`. An error is
    `error`, or has its fields at the top: FastChat's and vLLM's older versions, Alibaba's DashScope.
    """

    choices: list[ChunkChoice] | None = None
    usage: Any = None
    error: Any = None
    x_groq: Any = None
    object: Any = None
    error_code: Any = None
    code: Any = None
    message: Any = None

    @property
    def has_failed(self) -> bool:
        error = any(self.error.values()) if isinstance(self.error, dict) else self.error
        is_error = self.choices is None and bool(self.code or self.message)
        return bool(error or self.error_code) or self.object == "error" or is_error

    @property
    def figures(self) -> Any:
        return self.usage or (self.x_groq.get("usage") if isinstance(self.x_groq, dict) else None)

    @property
    def has_text(self) -> bool:
        """Whether it says or thinks something."""
        return any(one.content or (one.delta is not None and one.delta.thinks) for one in self.choices or ())
