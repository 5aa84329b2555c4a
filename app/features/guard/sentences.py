"""Collect an answer's deltas until they end with a sentence, so that it can be judged before readers get it.

Deltas are held whole and leave whole. The next owner of the partition therefore needs no state: it generates again what
was held. A sentence that does not end within `_LONGEST` characters is judged in pieces, each together with the one
before it.
"""

from __future__ import annotations

import re

from models.interface.generation import Delta, merged

_LONGEST = 400
_ENDED = re.compile(r"[.!?…][\"'”’)\]*_]*$")
_ENDED_FOR_SURE = re.compile(r"(?:[。！？]|\n|[.!?…][\"'”’)\]*_]*\s+)$")


class Sentences:
    """`written` is the part of the answer that readers have."""

    def __init__(self, written: str) -> None:
        self._held: list[Delta] = []
        self._before = _open_end(written)

    def add(self, delta: Delta) -> Delta | None:
        """The deltas that end with a sentence, as one."""
        self._held.append(delta)
        text = "".join(map(_text_of, self._held))
        if _ENDED_FOR_SURE.search(text) or len(text) >= _LONGEST:
            return self.rest()
        before = text.removesuffix(_text_of(delta))
        if len(self._held) > 1 and delta.text[:1].isspace() and _ENDED.search(before):
            ready, self._held = self._held[:-1], self._held[-1:]
            return merged(ready)
        return None

    def rest(self) -> Delta | None:
        """All that is held, as one."""
        ready, self._held = self._held, []
        return merged(ready) if ready else None

    def to_judge(self, delta: Delta | None, end: str = "") -> str:
        """The text of a delta that is about to leave, with the piece of the same sentence that has left before it."""
        text = ("" if delta is None else _text_of(delta)) + end
        whole = self._before + text
        self._before = _open_end(whole)
        return whole if text else ""


def _text_of(delta: Delta) -> str:
    return delta.reasoning + delta.text + "".join(call.arguments for call in delta.calls)


def _open_end(text: str) -> str:
    """The last piece of a text that does not end with a sentence."""
    return "" if _ENDED.search(text.rstrip()) or text.endswith(("\n", "。", "！", "？")) else text[-_LONGEST:]
