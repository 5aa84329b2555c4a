"""From vLLM's outputs to the events of one job."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Any

from models.interface.generation import (
    ConstraintError,
    Delta,
    End,
    Failure,
    FinishReason,
    Job,
    StreamEvent,
    TokenLogprob,
    Usage,
)
from models.structured.matcher import Matcher
from models.text.detokenizer import AnswerText, Vocabulary
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
        self._matcher: Matcher | None = None
        rule = job.stop_when
        self._confidence = deque(rule.before, rule.over) if rule is not None else deque[float]()
        self._text = AnswerText.of(vocabulary, job)
        for token in job.generated:
            if not self._text.stopped:
                self._text.step(token)

    @property
    def room(self) -> int:
        return self._limit - self.index

    def begin(self, matcher: Matcher | None = None) -> End | None:
        """The end, if the existing part already ends the answer or it cannot be continued. `matcher` follows its
        constraint; without one, vLLM's own grammar does, which can only begin where the answer begins.
        """
        self._matcher = matcher
        if self._text.stopped:
            return self.end(FinishReason.STOP)
        if matcher is None and self._job.constraint is not None and self._job.generated:
            return self.end(FinishReason.PARTIAL)
        if matcher is not None and not all(map(self._follows, self._job.generated)):
            return self.end(FinishReason.PARTIAL)  # another model has written it, or another version of this one
        if self._is_complete:
            return self.end(FinishReason.STOP)
        return self.end(FinishReason.LENGTH) if self.room <= 0 else None

    def read(self, output: Any) -> list[StreamEvent]:
        """The events of a `RequestOutput`, which contains what is new."""
        completion = output.outputs[0]
        if output.num_cached_tokens and not self._job.generated:
            self._cached = output.num_cached_tokens
        generated: list[int] = []
        text, reasoning = "", ""
        calls: list[CallDelta] = []
        over: FinishReason | None = None
        entries = iter(completion.logprobs or ())
        for token in completion.token_ids:
            if not self._follows(token):
                return [self.fail("engine_error", "the model's engine has left the form that was asked for")]
            if token in self._eos:
                over = FinishReason.STOP
                break
            generated.append(token)
            part = self._text.step(token)
            text += part.text
            reasoning += part.reasoning
            calls += part.calls
            if self._text.stopped or self._doubts(token, next(entries, None)) or self._is_complete:
                over = FinishReason.STOP
                break
        events: list[StreamEvent] = []
        scores = self._prompt_logprobs(output)
        if scores and not generated:
            events.append(Delta(self.index, (), "", prompt_logprobs=scores))
        if generated:
            most = self._job.sampling.logprobs or 0
            found = zip(generated, completion.logprobs or (), strict=False)
            logprobs = tuple(_logprob(token, entries, most) for token, entries in found)
            events.append(Delta(self.index, tuple(generated), text, logprobs, tuple(calls), scores, reasoning))
            self.index += len(generated)
        if over is None and completion.finish_reason is not None:
            over = REASONS.get(completion.finish_reason)
            if over is None:
                events.append(self.fail("engine_error", f"vLLM ended the answer with {completion.finish_reason}"))
        if over is not None:
            events.append(self.end(over))
        return events

    @property
    def _is_complete(self) -> bool:
        return self._matcher is not None and self._matcher.complete

    def _follows(self, token: int) -> bool:
        """Whether the constraint allows the token."""
        if self._matcher is None:
            return True
        try:
            self._matcher.advance(token)
        except ConstraintError:
            return False
        return True

    def _doubts(self, token: int, entries: dict[int, Any] | None) -> bool:
        """Whether the answer ends because the model is not confident any more."""
        rule = self._job.stop_when
        if rule is None or entries is None:
            return False
        self._confidence.append(entries[token].logprob)
        return len(self._confidence) == rule.over and sum(self._confidence) / rule.over < rule.mean_below

    def _prompt_logprobs(self, output: Any) -> tuple[TokenLogprob, ...]:
        """VLLM reports them once, with an empty entry for the first token."""
        most = self._job.prompt_logprobs or 0
        found = zip(self._job.prompt[1:], (output.prompt_logprobs or ())[1:], strict=False)
        return tuple(replace(_logprob(token, entries, most), rank=entries[token].rank) for token, entries in found)

    def end(self, reason: FinishReason) -> End:
        self.ended = True
        usage = Usage(len(self._job.prompt), self.index, self._cached)
        calls = self._text.calls
        if calls and reason is FinishReason.STOP:
            reason = FinishReason.TOOL_CALLS
        last = self._text.finish()
        return End(self.index, reason, usage, last.text, calls, last.reasoning)

    def fail(self, code: str, message: str) -> Failure:
        self.ended = True
        return Failure(self.index, code, (message.splitlines() or [code])[0])


def _logprob(token: int, entries: dict[int, Any], most: int) -> TokenLogprob:
    """`entries` are those of the `most` likeliest tokens, and of `token` if it is not among them."""
    ranked = sorted((entry.rank or 0, other, entry.logprob) for other, entry in entries.items())
    return TokenLogprob(token, entries[token].logprob, tuple((other, logprob) for _, other, logprob in ranked[:most]))
