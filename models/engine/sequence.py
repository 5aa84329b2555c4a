"""One sequence, as the engine's thread sees it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from models.compute.pages import Node, PagePool, Sharing, pages_for
from models.drawing.logit_changes import LogitChanges
from models.drawing.sampler import Draw, Token
from models.interface.fair_slots import payers_of
from models.interface.generation import Delta, End, FinishReason, Job, TokenLogprob, Usage
from models.interface.token_stream import TokenStream
from models.structured import Matcher
from models.text.detokenizer import AnswerText, Vocabulary


class SequenceState:
    """Its tokens, how many of them are in the KV cache, and their pages.

    There is no separate prefill or decode phase: a step computes some of the tokens that are not in the cache yet, and
    if it reaches the last one, it draws the next. A preempted sequence simply has nothing in the cache.
    """

    __slots__ = (
        "arrived",
        "cached",
        "changes",
        "compiling",
        "computed",
        "confidence",
        "ended",
        "eos",
        "job",
        "joined",
        "limit",
        "matcher",
        "most_at_once",
        "node",
        "number",
        "pages",
        "payers",
        "prompt_length",
        "published",
        "scores",
        "sharing",
        "stream",
        "text",
        "tokens",
    )

    def __init__(self, job: Job, stream: TokenStream, number: int, arrived: float, context_length: int) -> None:
        self.job = job
        self.stream = stream
        self.number = number
        self.payers = payers_of(job.tenant, job.user)
        self.arrived = arrived
        self.joined = arrived
        self.tokens: list[int] = [*job.prompt, *job.generated]
        self.prompt_length = len(job.prompt)
        self.changes: LogitChanges | None = None  # made by the first draw: many wait, and some never draw
        self.eos: tuple[int, ...] = ()
        self.limit = min(self.prompt_length + job.max_tokens, context_length)
        self.text: AnswerText | None = None
        self.compiling: Future[Matcher] | None = None
        self.matcher: Matcher | None = None
        self.sharing = Sharing(job.adapter, f"{job.tenant}\0{job.user}", job.shared)
        self.cached = 0
        self.ended = False
        self.most_at_once = 0  # tokens, where memory was short for more; 0: no limit of its own
        self.computed = 0
        self.pages: list[int] = []
        self.published = 0
        self.node: Node = self.sharing.start
        rule = job.stop_when
        self.confidence = deque(rule.before, rule.over) if rule is not None else deque[float]()
        is_scored = job.prompt_logprobs is not None and not job.generated
        self.scores: list[TokenLogprob] | None = [] if is_scored else None  # None once they are delivered

    @property
    def answered(self) -> int:
        """Tokens of the answer so far."""
        return len(self.tokens) - self.prompt_length

    @property
    def pending(self) -> int:
        """Tokens that are not in the cache yet; 1 while it decodes."""
        return len(self.tokens) - self.computed

    @property
    def foreseen(self) -> bool:
        """Whether the sequence certainly continues after its next token, and that token does not influence how others
        are drawn.
        """
        sampling = self.job.sampling
        free = self.matcher is None and sampling.logprobs is None and not sampling.changes_logits
        free = free and self.answered + 1 >= self.job.min_tokens
        return free and len(self.tokens) + 1 < self.limit

    def _forbidden(self, end: int) -> tuple[int, ...]:
        """Tokens that may not be drawn at `end`, because the answer would be too short."""
        return self.eos if end - self.prompt_length < self.job.min_tokens else ()

    def draw(self, end: int) -> Draw:
        """How the token at `end` is drawn: the next one, or one after tokens that are not known yet."""
        allowed = None if self.matcher is None else self.matcher.ahead(())[0]
        return Draw(self.job.sampling, end - self.prompt_length, self._logit_changes(), allowed, self._forbidden(end))

    def draws(self, draft: Sequence[int]) -> list[Draw]:
        """How the next token is drawn, and the one after each of `draft`, which must satisfy the output constraint."""
        masks = [None] * (len(draft) + 1) if self.matcher is None else self.matcher.ahead(draft)
        pieces = (draft[:ahead] for ahead in range(len(draft) + 1))
        return [self._draw_after(piece, mask) for piece, mask in zip(pieces, masks, strict=True)]

    def last_draw(self, draft: Sequence[int]) -> Draw:
        """The last of `draws`."""
        return self._draw_after(draft, None if self.matcher is None else self.matcher.ahead(draft)[-1])

    def _draw_after(self, draft: Sequence[int], mask: bytes | None) -> Draw:
        end, changes = len(self.tokens) + len(draft), self._logit_changes()
        after = None if changes is None else changes.after(draft)
        return Draw(self.job.sampling, end - self.prompt_length, after, mask, self._forbidden(end))

    def _logit_changes(self) -> LogitChanges | None:
        if self.changes is None and self.job.sampling.changes_logits:
            self.changes = LogitChanges.of(self.job.sampling, self.job.prompt, self.tokens[self.prompt_length :])
        return self.changes

    def read(self, vocabulary: Vocabulary, eos: frozenset[int] = frozenset()) -> End | None:
        """Process the part of the answer that exists; its end if a stop string ends it."""
        self.eos = tuple(sorted(eos))
        self.text = AnswerText.of(vocabulary, self.job)
        for token in self.job.generated:
            self.text.step(token)
            if self.text.stopped:
                return self.end(FinishReason.STOP)
        return None

    def begin(self, matcher: Matcher | None = None) -> End | None:
        """Continue after the existing part, with the output constraint of `matcher`; its end if nothing may follow.

        Raises `ConstraintError` if the existing part violates the constraint.
        """
        self.matcher = matcher
        if matcher is not None:
            for token in self.job.generated:
                matcher.advance(token)
        return self._over()

    def append(self, drawn: Token, eos: frozenset[int]) -> tuple[Delta | None, End | None]:
        """The events of a drawn token."""
        token = drawn.token
        assert self.text is not None
        scores, self.scores = tuple(self.scores or ()), None
        index = self.answered
        if token in eos:
            return Delta(index, (), "", prompt_logprobs=scores) if scores else None, self.end(FinishReason.STOP)
        self.tokens.append(token)
        if self.changes is not None:
            self.changes.append(token)
        logprobs = () if drawn.logprob is None else (drawn.logprob,)
        part = self.text.step(token)
        delta = Delta(index, (token,), part.text, logprobs, part.calls, scores, part.reasoning)
        if self.matcher is not None:
            self.matcher.advance(token)
        if self.text.stopped or self._doubts(drawn):
            return delta, self.end(FinishReason.STOP)
        return delta, self._over()

    def _doubts(self, drawn: Token) -> bool:
        """Whether the answer ends because the model is not confident any more."""
        rule = self.job.stop_when
        if rule is None or drawn.logprob is None:
            return False
        self.confidence.append(drawn.logprob.logprob)
        return len(self.confidence) == rule.over and sum(self.confidence) / rule.over < rule.mean_below

    def _over(self) -> End | None:
        if self.matcher is not None and self.matcher.complete:
            return self.end(FinishReason.STOP)
        return self.end(FinishReason.LENGTH) if len(self.tokens) >= self.limit else None

    def end(self, reason: FinishReason) -> End:
        usage = Usage(self.prompt_length, self.answered, self.cached)
        if self.text is None:
            return End(self.answered, reason, usage)
        calls = self.text.calls
        if calls and reason is FinishReason.STOP:
            reason = FinishReason.TOOL_CALLS
        last = self.text.finish()
        return End(self.answered, reason, usage, last.text, calls, last.reasoning)

    def allocate(self, pool: PagePool, spare: int = 0) -> bool:
        """Allocate pages for all its tokens, starting with published ones; False if fewer than `spare` would be
        left. A prompt whose tokens are scored is computed from its beginning.
        """
        cached, node = pool.match(self.sharing, () if self.scores is not None else self.tokens[:-1])
        need = pages_for(len(self.tokens), pool.size) - len(cached)
        # Checked before any page is taken, because taking could evict a published page of another.
        fresh = pool.allocate(need) if need + spare <= pool.available else None
        if fresh is None:
            pool.release(cached)
            return False
        self.pages, self.node, self.published = cached + fresh, node, len(cached)
        self.computed = len(cached) * pool.size
        return True

    def grow(self, pool: PagePool, ahead: int = 0) -> bool:
        """Allocate the page that the token `ahead` of its last one needs, if it needs one; at most one page ahead."""
        if len(self.tokens) + ahead <= len(self.pages) * pool.size:
            return True
        fresh = pool.allocate(1)
        if fresh is None:
            return False
        self.pages += fresh
        return True

    def advance(self, count: int, pool: PagePool) -> None:
        """`count` more tokens are in the cache; publish the pages that this filled."""
        self.computed += count
        self.most_at_once += count // 8 if self.most_at_once else 0  # memory may be there again
        size = pool.size
        while (self.published + 1) * size <= self.computed:
            start = self.published * size
            before = self.sharing.before(self.published, size, self.node)
            self.node = pool.publish(before, self.tokens[start : start + size], self.pages[self.published])
            self.published += 1

    def free(self, pool: PagePool, *, forget: bool = False) -> list[int]:
        """Release all pages; returns those that no sequence holds any more."""
        freed = pool.release(self.pages, forget=forget)
        if self.scores is not None:
            self.scores = []
        self.pages, self.computed, self.published, self.node = [], 0, 0, self.sharing.start
        return freed


@dataclass(slots=True, eq=False)  # not frozen, which would triple the cost: one is created per sequence and step
class ScheduledChunk:
    """What one step computes of one sequence: `count` tokens from `start` on; it `draws` where that reaches the last.

    Of a single token that draws, `draft` may come after it: guessed tokens, computed in the same step. A single token
    may also be the one behind the last, which the step before draws.
    """

    sequence: SequenceState
    start: int
    count: int
    draft: tuple[int, ...] = ()

    @property
    def draws(self) -> bool:
        return self.start + self.count >= len(self.sequence.tokens)

    @property
    def scored(self) -> int:
        """How many of its tokens, from the first on, give the log probability of the prompt's token after them."""
        if self.sequence.scores is None:
            return 0
        return max(0, min(self.start + self.count, self.sequence.prompt_length - 1) - self.start)

    @property
    def token(self) -> int:
        """The single token; 0 in place of one that is not known yet."""
        tokens = self.sequence.tokens
        return tokens[self.start] if self.start < len(tokens) else 0
