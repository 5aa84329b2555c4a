"""Speculative decoding: draft the next tokens of an answer, compute them all in one step, and keep the correct ones.

Sampling draws token `i` with noise keyed by `(seed, i)`, so the token after a correct draft is drawn in the same step,
and the answer is exactly the one without speculation, greedy or sampled. This is stricter than the rejection rule of
Leviathan et al. (2023), which preserves only the distribution. A wrong draft token costs its place in the step and
leaves keys and values that the next step overwrites.

Whether to draft is decided by measurements. One more token in a step costs `each` seconds; a correct token saves its
sequence's share of a step. A draft token therefore pays off if its chance is above `each * rows / step`: nearly always
if one sequence runs alone, seldom if a CPU is busy with many. The chance is estimated per sequence.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

from models.engine.compute.pages import PagePool
from models.engine.sequence import ScheduledChunk, SequenceState
from models.engine.speculation.cost import Cost
from models.engine.speculation.draft_model import DraftModel
from models.engine.speculation.record import LONGEST, Chance, Record
from models.sampler import Token

MARGIN = 1.2  # a draft must gain a bit more than it costs, because looking for it is not free
WIDEST = 256  # tokens of a step, drafts included

Drafts = dict[SequenceState, tuple[int, ...]]


class SpeculationMode(enum.StrEnum):
    OFF = "off"
    LOOKUP = "lookup"
    AUTO = "auto"


class Speculation:
    """Belongs to the engine's thread. `draft` drafts if nothing is found in a sequence's text."""

    def __init__(self, pool: PagePool, draft: DraftModel | None = None) -> None:
        self.cost = Cost()
        self.guessed = 0
        self.right = 0
        self._pool = pool
        self._draft = draft
        self._found, self._drafted = Chance(), Chance()
        self._records: dict[SequenceState, Record] = {}

    def extend(self, slices: list[ScheduledChunk]) -> list[ScheduledChunk]:
        """Add drafts to the slices that draw, if that pays off."""
        rows = [part.row for part in slices if part.count == 1 and part.draws]
        tokens = sum(part.count for part in slices)
        if not rows or not self.cost.known:
            return slices
        least = MARGIN * len(rows) * self.cost.each() / self.cost.of(tokens)
        drafts: Drafts = {}
        asking = [row for row in rows if not self._look_up(row, least, drafts)]
        if self._draft is not None:
            self._ask(self._draft, asking, least, tokens, drafts)
        room = max(0, WIDEST - tokens)
        extended = []
        for part in slices:
            draft = drafts.get(part.row, ())[:room]
            room -= len(draft)
            extended.append(ScheduledChunk(part.row, part.start, part.count, draft))
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
        if part.draft and (record := self._records.get(part.row)) is not None:
            right = 0
            while right < len(part.draft) and tokens[right].token == part.draft[right]:
                right += 1
            record.last.learn(len(part.draft), right)
            self.guessed += len(part.draft)
            self.right += right

    def leave(self, row: SequenceState) -> None:
        self._records.pop(row, None)
        if self._draft is not None:
            self._draft.leave(row)

    def _look_up(self, row: SequenceState, least: float, drafts: Drafts) -> bool:
        """Whether something was found; a draft is used only if that pays off."""
        record = self._records.get(row)
        if record is None:
            record = self._records[row] = Record(row, self._found, self._drafted)
        found = self._fitting(row, record.lookup.guess(row.tokens, LONGEST))
        if not found:
            return False
        record.last = record.found
        drafts[row] = found[: self._room(row, record.found.worth(least))]
        return True

    def _ask(self, model: DraftModel, rows: Sequence[SequenceState], least: float, tokens: int, drafts: Drafts) -> None:
        records = self._records
        wanted = [(row, self._room(row, records[row].draft.worth(least))) for row in rows]
        asked = [(row, most) for row, most in wanted if most > 0]
        if not asked:
            return
        most = model.worth([records[row].draft.value for row, _ in asked], self.cost, tokens)
        for row, draft in model.guess([(row, min(most, own)) for row, own in asked]).items():
            records[row].last = records[row].draft
            drafts[row] = self._fitting(row, draft)

    def _fitting(self, row: SequenceState, draft: tuple[int, ...]) -> tuple[int, ...]:
        """The part of a draft that the sequence's output constraint allows."""
        return draft if row.matcher is None or not draft else draft[: row.matcher.fitting(draft)]

    def _room(self, row: SequenceState, most: int) -> int:
        """As much of `most` as the answer may still have and its pages have room for: drafts never preempt a
        sequence.
        """
        most = min(most, row.limit - len(row.tokens) - 1)
        room = len(row.pages) * self._pool.size - len(row.tokens)
        if most > room and self._pool.available > len(self._records) and row.grow(self._pool, most):
            room = most
        return max(0, min(most, room))
