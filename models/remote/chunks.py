"""The chunks of a streamed completion, decoded straight from the bytes of its event stream.

The client's own stream makes an object of all of OpenAI's fields for each token, which took half of a worker's
processor time for an answer. The format: https://html.spec.whatwg.org/multipage/server-sent-events.html

Servers write dialects of it. What has OpenAI's shape is decoded at once; all else is read leniently (lenient.py): only
what cannot be a chunk, or has lost text, is an error.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Callable, Iterator

import msgspec

from models.remote.chunk import Chunk
from models.remote.lenient import lenient_chunk, whole_text

_END = b"[DONE]"
_ERROR = b"error"
_KEPT_ALIVE = frozenset({b"null", b"ping", b"keep-alive", b"keepalive", b"heartbeat"})
_LINE_ENDS = (b"\n", b"\r")
_OBJECT = b"{"

Note = Callable[[str], None]
"""What shape of its own a server writes, for the log."""

_decode = msgspec.json.Decoder(Chunk).decode


class Chunks:
    """Of one stream, whose parts may end anywhere. `ended`: the server has said that no chunk follows. All methods
    raise `ServerMisbehaved` for what is no chunk.
    """

    def __init__(self, note: Note = lambda _what: None) -> None:
        self.ended = False
        self._note = note
        self._begin: bytes | None = b""  # the first bytes, until they tell an event stream from one object
        self._body: list[bytes] | None = None  # of a server that does not stream
        self._line: list[bytes] = []  # a line whose end has not come
        self._data: list[bytes] = []
        self._event = b""
        self._half = ""  # the first half of a surrogate pair
        self._after_return = False

    def add(self, part: bytes) -> Iterator[Chunk]:
        """The chunks that this part completes."""
        if self._begin is not None:
            part = self._first(self._begin + part)
        if self._body is not None:
            self._body.append(part)
            return
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
            if (chunk := self._add_line(line)) is not None:
                yield chunk

    def close(self) -> Iterator[Chunk]:
        """The chunks that the end of the body completes."""
        if self._body is not None:
            self._note("one object instead of a stream")
            self.ended = True
            yield self._joined(lenient_chunk(b"".join(self._body), self._note))
        elif not self.ended:
            last = (self._add_line(b"".join(self._line)), self._add_line(b""))
            yield from (chunk for chunk in last if chunk is not None)

    def _first(self, part: bytes) -> bytes:
        if len(part) < len(BOM_UTF8) and BOM_UTF8.startswith(part):
            self._begin = part
            return b""
        self._begin = None
        if part.startswith(BOM_UTF8):
            self._note("a byte order mark")
            part = part[len(BOM_UTF8) :]
        if part.lstrip().startswith(_OBJECT):
            self._body = []
        return part

    def _add_line(self, line: bytes) -> Chunk | None:
        """The chunk that this line completes."""
        chunk = None
        if line.startswith(b"data:"):
            if self._data:
                chunk = self._unparted()
            self._data.append(line[5:])
        elif line.startswith(b"event:"):
            self._event = line[6:].strip()
        elif not line and self._data:
            data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
            chunk = self._chunk(data.strip())
            self._data.clear()
            self._event = b""
        return chunk

    def _unparted(self) -> Chunk | None:
        """The data so far, if it is a whole chunk: a server leaves out the empty line between events."""
        try:
            chunk = _decode(self._data[0]) if len(self._data) == 1 else None
        except msgspec.DecodeError:
            return None
        if chunk is not None:
            self._note("events without an empty line between them")
            self._data.clear()
        return chunk

    def _chunk(self, data: bytes) -> Chunk | None:
        if self.ended or not data.startswith(_OBJECT):
            self.ended = self.ended or data[: len(_END)].upper() == _END
            if not data or self.ended or data.lower() in _KEPT_ALIVE:
                return None
        if self._event == _ERROR:
            return Chunk(error=True)
        try:
            chunk = _decode(data)
        except (msgspec.DecodeError, UnicodeError):
            return self._joined(lenient_chunk(data, self._note))
        return self._joined(chunk) if self._half else chunk

    def _joined(self, chunk: Chunk) -> Chunk:
        """With the halves of a character together that stand in two chunks."""
        for choice in chunk.choices or ():
            whole, self._half = whole_text(self._half + choice.content, is_last=bool(choice.finish_reason))
            if self._half:
                self._note("a character in two chunks")
            if choice.delta is None:
                choice.text = whole
            else:
                choice.delta.content = whole
        return chunk
