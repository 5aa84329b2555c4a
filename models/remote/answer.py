"""One answer of an outside server: its tokens and text so far, and the events of its stream.

A token below 256 is a byte of the text's UTF-8. A server that tells its token ids (vLLM 0.11 and later) has those,
raised by 256: a successor gives them back to the server as they are, so that no word is cut anew. An answer has bytes
first, if another model has begun it, and then ids.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from models.interface.generation import Delta, End, Failure, FinishReason, Job, Usage
from models.interface.token_stream import TokenStream
from models.remote.chunk import MOST_COUNTED, Chunk
from models.remote.chunks import Note
from models.remote.http import ServerMisbehaved
from models.remote.reasons import oddity_of, reason_of
from models.text.detokenizer import StopStrings

BYTES = 256
BYTES_PER_TOKEN = 4
"""An estimate: how many tokens of the server a text had is not known."""
BYTES_PER_ASKED_TOKEN = 64
SLACK_BYTES = 4096
_PIECE = 4096  # characters of one delta whose tokens are bytes


class RemoteAnswer:
    """Raises `ServerMisbehaved` for what no server should send. Stop strings are those of the job if the servers do not
    get them. Unless a server `has_length`, an answer of `max_tokens` was cut by them, whatever it says.

    An answer that has had its reason is over, whatever follows: of that, the usage alone is read.
    """

    def __init__(self, job: Job, stream: TokenStream, *, stops_here: bool = False, has_length: bool = True) -> None:
        self.job = job
        self.stream = stream
        self.ended = False
        self.began = time.monotonic()
        self.failures = 0
        self.why = ""
        self.halvings = 0  # of the history, which was too long for a server
        self.begun, self.ids = begun_and_ids(job.generated)
        self._tokens = list(job.generated)
        self._stops = StopStrings(job.stop if stops_here else ())
        self._has_length = has_length
        self._late = ""  # text whose tokens are written already
        self._has_ids: bool | None = None  # whether the present stream tells them; None before its first text
        self._usage: Any = None
        self._reason: FinishReason | None = None
        self._note: Note = lambda _what: None
        self._redraws = False  # the next words are not those that the server before would have drawn
        self._size = 0
        self._most = BYTES_PER_ASKED_TOKEN * job.max_tokens + SLACK_BYTES

    @property
    def has_begun(self) -> bool:
        return bool(self._tokens)

    @property
    def is_over(self) -> bool:
        """Whether the server has told its reason."""
        return self._reason is not None

    @property
    def is_full(self) -> bool:
        """Whether it has all its tokens and lacks its end alone. Of text it is not known how many tokens it was."""
        return bool(self.ids) and not self.begun and len(self.ids) >= self.job.max_tokens

    @property
    def rest(self) -> Job:
        """The job as it is now."""
        return replace(self.job, generated=tuple(self._tokens))

    @property
    def stopped(self) -> bool:
        """Whether a stop string was completed."""
        return self._stops.stopped

    @property
    def is_too_long(self) -> bool:
        """Whether the servers have sent far more text than the job's tokens can have."""
        return self._size > self._most

    def until(self, longest_s: float) -> float:
        """The event loop's time at which it has taken longer than that."""
        return asyncio.get_running_loop().time() + self.began + longest_s - time.monotonic()

    def restore(self, text: str) -> None:
        """What the tokens that a former owner has written say: the beginning of a stop string may be among it."""
        self._stops = StopStrings(self.job.stop)
        self._stops.add(text)

    def begin_stream(self, note: Note = lambda _what: None) -> None:
        """A server is asked for the rest. What has been held back has no bytes in the log: it is written again."""
        self._note = note
        self._has_ids, self._reason = None, None
        is_broken = len(self._tokens) > len(self.job.generated)  # readers know of what was generated before this job
        self._redraws = is_broken and not self.job.sampling.is_determined
        if not self.ids:
            self._stops.held = ""

    def add(self, chunk: Chunk) -> None:
        self._usage = chunk.figures or self._usage
        if self.is_over:
            return
        if chunk.has_failed:
            raise ServerMisbehaved("the server ended the answer with an error")
        for choice in chunk.choices or ():
            reason = None
            if choice.finish_reason is not None:
                reason = reason_of(choice.finish_reason)
                if (oddity := oddity_of(choice.finish_reason)) is not None:
                    self._note(oddity)
            self._push(choice.content, choice.token_ids, is_stopped=reason is FinishReason.STOP)
            self._reason = reason  # an answer whose last words are refused is not over
            if reason is not None:
                break

    def _push(self, text: str, ids: list[int] | None, *, is_stopped: bool) -> None:
        if self._has_ids is None and (text or ids):
            self._has_ids = bool(ids)
            if self.ids and not ids:
                raise ServerMisbehaved("the server tells no token ids, unlike the one before")
        if self._has_ids:
            self._push_ids(text, ids or [], is_stopped=is_stopped)
        elif text:
            self._push_text(text)

    def _push_ids(self, text: str, ids: list[int], *, is_stopped: bool) -> None:
        if len(text) > BYTES_PER_ASKED_TOKEN * len(ids) + SLACK_BYTES:
            raise ServerMisbehaved("the server sends more text than its tokens can have")
        self._size += len(text)
        if is_stopped:
            ids = ids[:-1]  # the end of the sequence
        text = self._late + self._stops.add(text)
        self._late = ""
        if ids:
            self._deliver(tuple(BYTES + one for one in ids), text)
        else:
            self._late = text

    def _push_text(self, text: str) -> None:
        shown = self._stops.add(text)
        self._size += len(text)
        for at in range(0, len(shown), _PIECE):
            piece = shown[at : at + _PIECE]
            self._deliver(tuple(piece.encode()), piece)
        self.begun += shown

    def _deliver(self, tokens: tuple[int, ...], text: str) -> None:
        self.stream.push(Delta(len(self._tokens), tokens, text, redraws=self._redraws))
        self._redraws = False
        self._tokens += tokens
        if self._has_ids:
            self.ids += [token - BYTES for token in tokens]

    def finish(self, *, is_whole: bool = False) -> None:
        """The server has closed the stream. Raises `ServerMisbehaved` if the answer is not complete. `is_whole`: it has
        said so without a reason.
        """
        reason, has_length = self._reason, self._has_length
        if reason is None:
            if not is_whole or self._has_ids is None:
                raise ServerMisbehaved("the server closed the connection in the middle of the answer")
            self._note("no finish_reason")
            reason, has_length = FinishReason.STOP, False
        written = _count(self._usage, "completion_tokens") or 0
        is_cut = reason is FinishReason.STOP and not has_length and written >= self.job.max_tokens
        self.end(FinishReason.LENGTH if is_cut else reason)

    def end(self, reason: FinishReason) -> None:
        self.ended = True
        prompt, generated = (_count(self._usage, name) for name in ("prompt_tokens", "completion_tokens"))
        # The server's figure is right, unless the answer was continued and the server counts the last part alone.
        is_whole = not self.job.generated and not self.failures
        details = self._usage.get("prompt_tokens_details") if isinstance(self._usage, dict) else None
        cached = min(_count(details, "cached_tokens") or 0, prompt or 0) if is_whole else 0
        usage = Usage(prompt or 0, generated if generated is not None and is_whole else count_of(self._tokens), cached)
        text = self._late + ("" if self.stopped else self._stops.held)
        self.stream.push(End(len(self._tokens), reason, usage, text))

    def fail(self, code: str, message: str) -> None:
        self.ended = True
        self.stream.push(Failure(len(self._tokens), code, (message.splitlines() or [code])[0]))


def _count(usage: Any, name: str) -> int | None:
    """A figure of the server, if it is one."""
    value = usage.get(name) if isinstance(usage, dict) else None
    if not isinstance(value, int | float) or not 0 <= value <= MOST_COUNTED:
        return None
    return int(value) if value == int(value) else None


def count_of(tokens: Sequence[int]) -> int:
    """About how many tokens of the server these are; exact for ids."""
    ids = sum(token >= BYTES for token in tokens)
    return ids + (len(tokens) - ids) // BYTES_PER_TOKEN


def begun_and_ids(tokens: Sequence[int]) -> tuple[str, list[int]]:
    """The text that an answer begins with, and the server's ids of what follows it."""
    first = next((at for at, token in enumerate(tokens) if token >= BYTES), len(tokens))
    return bytes(tokens[:first]).decode(errors="replace"), [token - BYTES for token in tokens[first:]]


def text_of(token: int, *, begins: bool = False) -> str:  # noqa: ARG001 - no space depends on it
    """What is known of a single token."""
    return bytes([token]).decode(errors="replace") if token < BYTES else ""
