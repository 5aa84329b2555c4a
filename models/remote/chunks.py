"""The chunks of a streamed completion, decoded straight from the bytes of its event stream.

The client's own stream makes an object of all of OpenAI's fields for each token, which took half of a worker's
processor time for an answer. The format: https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec

MOST_COUNTED = 2**31 - 1
_END = b"[DONE]"
_LINE_ENDS = (b"\n", b"\r")


class Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: Any = None
    reasoning: Any = None


class Choice(msgspec.Struct):
    """`delta` of a chat completion, `text` of a raw one."""

    delta: Delta | None = None
    text: str | None = None
    finish_reason: str | None = None
    token_ids: list[Annotated[int, msgspec.Meta(ge=0, le=MOST_COUNTED)]] | None = None

    @property
    def content(self) -> str:
        return (self.text if self.delta is None else self.delta.content) or ""


class Chunk(msgspec.Struct):
    """`usage` is whatever the server sends under that name."""

    choices: list[Choice] | None = None
    usage: Any = None
    error: Any = None

    @property
    def has_text(self) -> bool:
        """Whether it says or thinks something."""
        return any(
            one.content or (one.delta is not None and (one.delta.reasoning_content or one.delta.reasoning))
            for one in self.choices or ()
        )


_decode = msgspec.json.Decoder(Chunk).decode


class Chunks:
    """Of one stream, whose parts may end anywhere. `ended`: the server has said that no chunk follows."""

    def __init__(self) -> None:
        self.ended = False
        self._line: list[bytes] = []  # a line whose end has not come
        self._data: list[bytes] = []
        self._after_return = False

    def add(self, part: bytes) -> Iterator[Chunk]:
        """The chunks that this part completes. Raises `msgspec.DecodeError` for what is no chunk."""
        if self._after_return and part.startswith(b"\n"):
            part = part[1:]  # the other half of a line's end
        if not part:
            return
        self._after_return = part.endswith(b"\r")
        lines = part.splitlines()
        if self._line:
            lines[0] = b"".join([*self._line, lines[0]])
            self._line.clear()
        if not part.endswith(_LINE_ENDS):
            self._line.append(lines.pop())
        for line in lines:
            if line.startswith(b"data:"):
                self._data.append(line[5:])
            elif not line and self._data:
                yield from self._event()

    def _event(self) -> Iterator[Chunk]:
        data = b"\n".join(self._data).strip()
        self._data.clear()
        self.ended = self.ended or data.startswith(_END)
        if data and not self.ended:
            yield _decode(data)
