"""The trace of an answer, and the ids of its spans.

The ids follow from the answer, so whoever goes on with it, after a death, a rebalance or a sleep, writes into the same
tree, and the record of a call can name a span that is written only when its result is there:

    the trace     that of the request's record; otherwise it follows from the request
    the answer    one span from the request to the commit, of answers that may call tools
    a part        what one owner does with one record of it: an epoch and a number of wakes
    a call        from the record of the call to its result, whoever has read that
"""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple

from app.delivery.accepted import Accepted, RequestKey
from app.delivery.record import HeaderList
from app.settings import Settings
from app.wire.codec import TRACE_HEADERS, trace_headers_of

TraceHeaders = tuple[tuple[str, bytes], ...]

_SAMPLED = 1
_LOW = (1 << 64) - 1


class AnswerTrace(NamedTuple):
    """`parent` is the span that the request's record names. `brought` are its headers."""

    trace_id: int
    parent: int | None
    is_sampled: bool
    brought: TraceHeaders

    @classmethod
    def of(cls, headers: HeaderList, key: RequestKey, at: int) -> AnswerTrace:
        brought = trace_headers_of(headers)
        parts = dict(brought).get(TRACE_HEADERS[0], b"").split(b"-")
        if len(parts) == 4 and parts[0] != b"ff" and int(parts[1], 16) and int(parts[2], 16):
            return cls(int(parts[1], 16), int(parts[2], 16), bool(int(parts[3], 16) & _SAMPLED), brought)
        return cls(_hashed(16, *key, at), None, True, ())

    @classmethod
    def of_accepted(cls, accepted: Accepted) -> AnswerTrace:
        return cls.of(accepted.record.headers, accepted.key, accepted.at)

    def is_recorded(self, settings: Settings) -> bool:
        """As OpenTelemetry's `TraceIdRatioBased` decides: alike in each process with these settings."""
        share = round(settings.traces_sample * (_LOW + 1))
        return settings.traces != "off" and self.is_sampled and self.trace_id & _LOW < share

    def answer(self, key: RequestKey) -> int:
        return _hashed(8, self.trace_id, *key)

    def part(self, key: RequestKey, epoch: int, wakes: int) -> int:
        return _hashed(8, self.trace_id, *key, epoch, wakes)

    def call(self, call_id: str) -> int:
        return _hashed(8, self.trace_id, call_id)

    def headers(self, span_id: int) -> TraceHeaders:
        """The headers that make later work a part of this span."""
        parent = f"00-{self.trace_id:032x}-{span_id:016x}-01".encode()
        return ((TRACE_HEADERS[0], parent), *(one for one in self.brought if one[0] != TRACE_HEADERS[0]))

    def headers_of_call(self, settings: Settings, call_id: str) -> TraceHeaders:
        return self.headers(self.call(call_id)) if self.is_recorded(settings) else self.brought

    def headers_of_answer(self, settings: Settings, key: RequestKey) -> TraceHeaders:
        return self.headers(self.answer(key)) if self.is_recorded(settings) else self.brought


def _hashed(size: int, *names: object) -> int:
    """Never 0, which names no span."""
    digest = blake2b("\0".join(map(str, names)).encode(errors="replace"), digest_size=size).digest()
    return int.from_bytes(digest) or 1
