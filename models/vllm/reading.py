"""From vLLM's outputs to the events of one job."""

from __future__ import annotations

from typing import Any

from models.answer_text import AnswerText
from models.detokenizer import Vocabulary
from models.generation import Delta, End, Failure, FinishReason, Job, StreamEvent, TokenLogprob, Usage
from models.tools.parser import CallDelta

REASONS = {"stop": FinishReason.STOP, "length": FinishReason.LENGTH}


class Reading:
    """One answer being read; `limit` is the most tokens it may have, existing ones included."""

    def __init__(self, job: Job, vocabulary: Vocabulary, eos: frozenset[int], limit: int) -> None:
        self.ended = False
        self.index = len(job.generated)
        self._job = job
        self._eos = eos
        self._limit = limit
        self._cached = 0
        self._text = AnswerText(vocabulary, job.stop, job.tools)
        for token in job.generated:
            if not self._text.stopped:
                self._text.step(token)

    @property
    def room(self) -> int:
        return self._limit - self.index

    def begin(self) -> End | None:
        """The end, if the existing part already ends the answer or it cannot be continued."""
        if self._text.stopped:
            return self.end(FinishReason.STOP)
        if self.room <= 0:
            return self.end(FinishReason.LENGTH)
        # vLLM's grammar would start again after the existing part
        return self.end(FinishReason.PARTIAL) if self._job.shape is not None and self._job.generated else None

    def read(self, output: Any) -> list[StreamEvent]:
        """The events of a `RequestOutput`, which contains what is new."""
        completion = output.outputs[0]
        if output.num_cached_tokens and not self._job.generated:
            self._cached = output.num_cached_tokens
        generated: list[int] = []
        text = ""
        calls: list[CallDelta] = []
        over: FinishReason | None = None
        for token in completion.token_ids:
            if token in self._eos:
                over = FinishReason.STOP
                break
            generated.append(token)
            more, deltas = self._text.step(token)
            text += more
            calls += deltas
            if self._text.stopped:
                over = FinishReason.STOP
                break
        events: list[StreamEvent] = []
        if generated:
            logprobs = tuple(map(_logprob, generated, completion.logprobs or ()))
            events.append(Delta(self.index, tuple(generated), text, logprobs, tuple(calls)))
            self.index += len(generated)
        if over is None and completion.finish_reason is not None:
            over = REASONS.get(completion.finish_reason)
            if over is None:
                events.append(self.fail("engine_error", f"vLLM ended the answer with {completion.finish_reason}"))
        if over is not None:
            events.append(self.end(over))
        return events

    def end(self, reason: FinishReason) -> End:
        self.ended = True
        usage = Usage(len(self._job.prompt), self.index, self._cached)
        calls = self._text.calls
        if calls and reason is FinishReason.STOP:
            reason = FinishReason.TOOL_CALLS
        return End(self.index, reason, usage, self._text.finish(), calls)

    def fail(self, code: str, message: str) -> Failure:
        self.ended = True
        return Failure(self.index, code, (message.splitlines() or [code])[0])


def _logprob(token: int, found: dict[int, Any]) -> TokenLogprob:
    """The likeliest tokens are ordered by rank, and the drawn one is listed even if it is not among them."""
    own = found[token]
    ranked = sorted((entry.rank or 0, other, entry.logprob) for other, entry in found.items())
    top = len(found) - (1 if own.rank == len(found) and own.rank > 1 else 0)
    return TokenLogprob(token, own.logprob, tuple((other, logprob) for _, other, logprob in ranked[:top]))
