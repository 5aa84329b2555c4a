"""A small model that drafts for a large one.

It shares the pages of the sequences: a page of the large model's cache has its counterpart here. It draws with the same
noise, penalties and constraints as the large one, so both draw the same token wherever they agree. It can never change
an answer: missing keys and values only make its drafts worse.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence

import torch

from models.checkpoints.loading import Checkpoint, CheckpointError
from models.compute.cache import KVCache
from models.compute.fused import cache_dtype
from models.compute.pages import PagePool
from models.drawing.sampler import sample
from models.engine.runner import Runner
from models.engine.sequence import ScheduledChunk, SequenceState
from models.engine.speculation.record import LONGEST, Cost

CHUNK = 256  # prompt tokens that are processed before a step


class Shadow:
    """A sequence as the draft model sees it: it computes the tokens of `sequence`, and drafts after them."""

    __slots__ = ("guessed_at", "known", "sequence", "source")

    def __init__(self, source: SequenceState) -> None:
        plain = dataclasses.replace(source.job, generated=(), constraint=None, adapter="", prompt_logprobs=None)
        self.source = source
        self.sequence = SequenceState(plain, source.stream, source.number, 0.0, source.limit)
        self.guessed_at = 0  # tokens of the source at its last draft
        self.known = 0  # tokens of the source that were checked, all in the draft model's vocabulary

    def reads(self, vocabulary: int) -> bool:
        """Whether the draft model knows all tokens of the source; it lacks the padding of a larger table."""
        tokens = self.source.tokens
        while self.known < len(tokens) and tokens[self.known] < vocabulary:
            self.known += 1
        return self.known == len(tokens)

    def follow(self) -> int:
        """Copy new tokens of the source; returns the tokens that are still to be computed."""
        sequence, source = self.sequence, self.source
        if sequence.pages is not source.pages:  # it begins, or was preempted
            sequence.pages, sequence.computed = source.pages, 0
        same = self.guessed_at
        while same < min(len(sequence.tokens), len(source.tokens)) and sequence.tokens[same] == source.tokens[same]:
            same += 1
        sequence.tokens[same:] = source.tokens[same:]
        sequence.computed = min(sequence.computed, same)
        self.guessed_at = len(source.tokens)
        return len(sequence.tokens) - sequence.computed


class DraftModel:
    """Drafts for many sequences at once; belongs to the engine's thread."""

    def __init__(self, checkpoint: Checkpoint, pages: int, pool: PagePool, vocabulary: int) -> None:
        """`vocabulary`: of the large model, which may be padded to another size."""
        model = checkpoint.model
        self._vocabulary = vocabulary
        self._own_vocabulary: int = model.config.vocab_size
        self._context_length = checkpoint.context_length
        self._runner = Runner(checkpoint, KVCache(model.config, pages, model.device, cache_dtype(model)), pool)
        self._eos = checkpoint.eos
        self._shadows: dict[SequenceState, Shadow] = {}
        self.cost = Cost()

    def worth(self, chances: Sequence[float], cost: Cost, tokens: int) -> int:
        """How many tokens to draft for sequences with these chances, to generate the most tokens per second.

        `tokens` are in the large model's step without drafts; `cost` is the cost of its steps.
        """
        sequences, chance = len(chances), sum(chances) / len(chances)

        def per_second(length: int) -> float:
            expected_tokens = tokens + sequences * sum(chance**at for at in range(1, length + 1))
            own = length * self.cost.of(sequences) if self.cost.known else 0.0  # never tried: assume no cost
            return expected_tokens / (cost.of(tokens + sequences * length) + own)

        return max(range(LONGEST + 1), key=per_second)

    @torch.inference_mode()
    def guess(self, asked: Sequence[tuple[SequenceState, int]]) -> dict[SequenceState, tuple[int, ...]]:
        """At most that many tokens for each sequence; none while its prompt is being processed, or if it is too
        long.
        """
        ready: list[tuple[Shadow, int]] = []
        for sequence, most in asked:
            shadow = self._shadows.setdefault(sequence, Shadow(sequence))
            if len(sequence.tokens) + most > self._context_length or not shadow.reads(self._own_vocabulary):
                continue
            if shadow.follow() > CHUNK:
                self._compute([ScheduledChunk(shadow.sequence, shadow.sequence.computed, CHUNK)])
                shadow.sequence.computed += CHUNK
            elif most > 0:
                ready.append((shadow, most))
        for length in range(max((most for _, most in ready), default=0)):
            going = [shadow for shadow, most in ready if most > length and shadow.sequence.tokens[-1] not in self._eos]
            if going:
                self._draw_one_more(going)
        return {shadow.source: tuple(shadow.sequence.tokens[len(shadow.source.tokens) :]) for shadow, _ in ready}

    def leave(self, sequence: SequenceState) -> None:
        self._shadows.pop(sequence, None)

    def _draw_one_more(self, shadows: Sequence[Shadow]) -> None:
        """One more token for each."""
        begun, tokens = time.perf_counter(), sum(shadow.sequence.pending for shadow in shadows)
        slices = [
            ScheduledChunk(shadow.sequence, shadow.sequence.computed, shadow.sequence.pending) for shadow in shadows
        ]
        batch = self._runner.pack(slices)
        by_sequence = {shadow.sequence: shadow for shadow in shadows}
        drawing = [by_sequence[part.sequence] for part, _ in batch.draws]
        draws = [shadow.source.last_draw(shadow.sequence.tokens[len(shadow.source.tokens) :]) for shadow in drawing]
        logits = self._runner.forward(batch)[:, : self._vocabulary]
        for shadow, token in zip(drawing, sample(logits, draws).read(), strict=True):
            shadow.sequence.computed = len(shadow.sequence.tokens)
            shadow.sequence.tokens.append(token.token)
        if tokens <= 2 * len(shadows):  # no prompt among them
            self.cost.learn(tokens, time.perf_counter() - begun)

    def _compute(self, slices: Sequence[ScheduledChunk]) -> None:
        self._runner.forward(self._runner.pack(slices))


def check_draft(draft: Checkpoint, checkpoint: Checkpoint) -> None:
    """Raise `CheckpointError` if `draft` cannot draft for `checkpoint`."""
    if draft.tokenizer.get_vocab() != checkpoint.tokenizer.get_vocab():
        raise CheckpointError(f"model {draft.name} cannot draft for {checkpoint.name}: their tokenizers differ")
