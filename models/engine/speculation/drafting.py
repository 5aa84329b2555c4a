"""Speculative decoding: draft the next tokens of an answer, compute them all in one step, and keep the correct ones.

Sampling draws token `i` with noise keyed by `(seed, i)`, so the token after a correct draft is drawn in the same step,
and the answer is exactly the one without speculation, greedy or sampled. This is stricter than the rejection rule of
Leviathan et al. (2023), which preserves only the distribution. A wrong draft token costs its place in the step and
leaves keys and values that the next step overwrites.

Whether to draft is decided by measurements. One more token in a step costs `each` seconds; a correct token saves its
sequence's share of a step. A draft token therefore pays off if its chance is above `each * sequences / step`: nearly
always if one sequence runs alone, seldom if a CPU is busy with many. The chance is estimated per sequence.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

from models.compute.pages import PagePool
from models.drawing.sampler import Token
from models.engine.sequence import ScheduledChunk, SequenceState
from models.engine.speculation.draft_model import DraftModel
from models.engine.speculation.record import LONGEST, Chance, Cost, DraftRecord

MARGIN = 1.2  # a draft must gain a bit more than it costs, because looking for it is not free
WIDEST = 256  # tokens of a step, drafts included

Drafts = dict[SequenceState, tuple[int, ...]]


class SpeculationMode(enum.StrEnum):
    OFF = "off"
    LOOKUP = "lookup"
    AUTO = "auto"


class Speculation:
    """Belongs to the engine's thread. `draft` drafts if nothing can be copied from a sequence's text."""

    def __init__(self, pool: PagePool, draft: DraftModel | None = None) -> None:
        self.cost = Cost()
        self.guessed = 0
        self.right = 0
        self._pool = pool
        self._draft = draft
        self._copied, self._drafted = Chance(), Chance()
        self._records: dict[SequenceState, DraftRecord] = {}

    def extend(self, slices: list[ScheduledChunk]) -> list[ScheduledChunk]:
        """Add drafts to the slices that draw, if that pays off."""
        sequences = [part.sequence for part in slices if part.count == 1 and part.draws]
        tokens = sum(part.count for part in slices)
        if not sequences or not self.cost.known:
            return slices
        least = MARGIN * len(sequences) * self.cost.each() / self.cost.of(tokens)
        drafts: Drafts = {}
        asking = [sequence for sequence in sequences if not self._copy(sequence, least, drafts)]
        if self._draft is not None:
            self._ask(self._draft, asking, least, tokens, drafts)
        room = max(0, WIDEST - tokens)
        extended = []
        for part in slices:
            draft = drafts.get(part.sequence, ())[:room]
            room -= len(draft)
            extended.append(ScheduledChunk(part.sequence, part.start, part.count, draft))
        return extended

    def learn(
        self, slices: Sequence[ScheduledChunk], drawn: Sequence[tuple[ScheduledChunk, list[Token]]], seconds: float
    ) -> None:
        """A step computed `slices` in that many seconds and returned `drawn`."""
        if all(part.count == 1 for part in slices):
            self.cost.learn(sum(1 + len(part.draft) for part in slices), seconds)
        for part, tokens in drawn:
            self._judge(part, tokens)

    def _judge(self, part: ScheduledChunk, tokens: Sequence[Token]) -> None:
        if part.draft and (record := self._records.get(part.sequence)) is not None:
            right = 0
            while right < len(part.draft) and tokens[right].token == part.draft[right]:
                right += 1
            record.last.learn(len(part.draft), right)
            self.guessed += len(part.draft)
            self.right += right

    def leave(self, sequence: SequenceState) -> None:
        self._records.pop(sequence, None)
        if self._draft is not None:
            self._draft.leave(sequence)

    def _copy(self, sequence: SequenceState, least: float, drafts: Drafts) -> bool:
        """Whether something can be copied; a draft is used only if that pays off."""
        record = self._records.get(sequence)
        if record is None:
            record = self._records[sequence] = DraftRecord(sequence, self._copied, self._drafted)
        copied = self._fitting(sequence, record.lookup.guess(sequence.tokens, LONGEST))
        if not copied:
            return False
        record.last = record.copied
        drafts[sequence] = copied[: self._room(sequence, record.copied.worth(least))]
        return True

    def _ask(
        self, model: DraftModel, sequences: Sequence[SequenceState], least: float, tokens: int, drafts: Drafts
    ) -> None:
        records = self._records
        wanted = [(sequence, self._room(sequence, records[sequence].draft.worth(least))) for sequence in sequences]
        asked = [(sequence, most) for sequence, most in wanted if most > 0]
        if not asked:
            return
        most = model.worth([records[sequence].draft.value for sequence, _ in asked], self.cost, tokens)
        for sequence, draft in model.guess([(sequence, min(most, own)) for sequence, own in asked]).items():
            records[sequence].last = records[sequence].draft
            drafts[sequence] = self._fitting(sequence, draft)

    def _fitting(self, sequence: SequenceState, draft: tuple[int, ...]) -> tuple[int, ...]:
        """The part of a draft that the sequence's output constraint allows."""
        return draft if sequence.matcher is None or not draft else draft[: sequence.matcher.allowed_count(draft)]

    def _room(self, sequence: SequenceState, most: int) -> int:
        """As much of `most` as the answer may still have and its pages have room for: drafts never preempt a
        sequence.
        """
        most = min(most, sequence.limit - len(sequence.tokens) - 1)
        room = len(sequence.pages) * self._pool.size - len(sequence.tokens)
        if most > room and self._pool.available > len(self._records) and sequence.grow(self._pool, most):
            room = most
        return max(0, min(most, room))
