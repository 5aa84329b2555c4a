"""Put private values back into an answer while it is generated.

Tokens that may end in a part of a placeholder are held back until the placeholder is complete, and leave together. So
no event of `tokens` ends within a placeholder, and the next owner of the partition needs no state: it generates again
what was held back. Within addresses (addresses.py) placeholders stay, which depends on the text before them alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate

from app.private.addresses import Addresses
from app.private.mask import Mask
from models.interface.chat import ModelCall
from models.interface.generation import Delta, End, Failure, FinishReason, StreamEvent, merged
from models.tools.parser import CallDelta


@dataclass(frozen=True, slots=True)
class Written:
    """What readers have of an answer. `call_ends`: the last letter of each call that they have, if it has any."""

    text: str = ""
    reasoning: str = ""
    call_ends: Mapping[int, str] = field(default_factory=dict)


NOTHING = Written()


class PutBack:
    """Events of one stream as readers get them, who have what was `written` before; `in_json`: the text is JSON."""

    def __init__(self, mask: Mask, written: Written = NOTHING, *, in_json: bool = False) -> None:
        self._mask = mask
        self._text = Addresses(written.text if mask else "", in_json=in_json)
        self._reasoning = Addresses(written.reasoning if mask else "")
        self._call_ends = dict(written.call_ends)
        self._held: list[Delta] = []

    def read(self, event: StreamEvent) -> Iterator[StreamEvent]:
        """What can leave now."""
        match event:
            case _ if not self._mask:
                yield event
            case Delta():
                self._held.append(event)
                if count := self._ready_count():
                    ready, self._held = self._held[:count], self._held[count:]
                    yield self._shown(merged(ready))
            case End():
                yield from self._end(event)
            case Failure():
                yield event  # what is held back is generated again

    def _ready_count(self) -> int:
        """How many of the held deltas can leave."""
        channels = [[one.text for one in self._held], [one.reasoning for one in self._held]]
        indexes = sorted({call.index for one in self._held for call in one.calls})
        channels += [[_arguments(one, index) for one in self._held] for index in indexes]
        ends = [list(accumulate(map(len, texts))) for texts in channels]
        calls = (self._call_ends.get(index, "") for index in indexes)
        before = [self._text.tail, self._reasoning.tail, *calls]
        scans = [self._mask.scan("".join(texts), end) for texts, end in zip(channels, before, strict=True)]
        for count in range(len(self._held), 0, -1):
            if all(scan.allows_cut(end[count - 1]) for scan, end in zip(scans, ends, strict=True)):
                return count
        return 0

    def _shown(self, delta: Delta) -> Delta:
        calls = tuple(map(self._shown_call, _joined(delta)))
        reasoning = self._mask.shown(delta.reasoning, self._reasoning)
        text = self._mask.shown(delta.text, self._text)
        return dataclasses.replace(delta, text=text, calls=calls, reasoning=reasoning)

    def _shown_call(self, call: CallDelta) -> CallDelta:
        before = self._call_ends.get(call.index, "")
        arguments = self._mask.put_back_json(call.arguments, before)
        self._call_ends[call.index] = arguments[-1:] or before
        return dataclasses.replace(call, arguments=arguments)

    def _end(self, end: End) -> Iterator[StreamEvent]:
        """A placeholder may be in the held tokens and in the text of the end. Half of one, in an answer that is cut
        short, is dropped.
        """
        text, reasoning = end.text, end.reasoning
        if self._held:
            delta, self._held = merged(self._held), []
            text, reasoning = delta.text + text, delta.reasoning + reasoning
            yield self._shown(dataclasses.replace(delta, text="", reasoning=""))
        is_cut = end.reason is not FinishReason.STOP
        reasoning = self._mask.shown(reasoning, self._reasoning, is_cut=is_cut)
        text = self._mask.shown(text, self._text, is_cut=is_cut)
        calls = tuple(ModelCall(one.name, self._mask.put_back_json(one.arguments), one.id) for one in end.calls)
        yield dataclasses.replace(end, text=text, calls=calls, reasoning=reasoning)


def _arguments(delta: Delta, index: int) -> str:
    return "".join(call.arguments for call in delta.calls if call.index == index)


def _joined(delta: Delta) -> Iterator[CallDelta]:
    for index in dict.fromkeys(call.index for call in delta.calls):
        name = next((call.name for call in delta.calls if call.index == index and call.name), "")
        yield CallDelta(index, name, _arguments(delta, index))
