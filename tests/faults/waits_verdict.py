"""What later requests of a conversation read of answers that sleep: their turns stand where their requests are, open.

Each call of an open turn has a result, as templates expect: that it waits. Since when it has waited for which call is
on the topic `waits`. An open turn that later ones have pushed out of the conversation stands behind them once it ends.
So does the turn of an answer of which a guard hid values: it has no open one.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, product

from app.features.waits.sleep import OPEN
from app.wire.turn import Turn
from models.interface.chat import ChatMessage, PastTurn
from tests.faults.waits_topic import AWAKE

_MOST_SEEN = 2048
_CLOCKS_MS = 500
"""What the clocks of the broker and of workers may differ by, and a commit may take."""


@dataclass(frozen=True, slots=True)
class Slept:
    """When an answer ended that has slept, whether its turn is remembered, and since when it slept for each call for
    which it had an open turn: none if a guard hid values by then. One that is hidden never had an open turn.
    """

    ended_at: int
    is_kept: bool
    since: Mapping[str, int]
    is_hidden: bool

    @classmethod
    def of(cls, turn: Turn, since: Mapping[str, int], unseen: Collection[str]) -> Slept:
        shown = {name: at for name, at in since.items() if name not in unseen}
        is_hidden = bool(since) and not shown.keys() - {AWAKE}
        return cls(turn.created_at, bool(turn.answer or turn.reasoning), {} if is_hidden else shown, is_hidden)


@dataclass(frozen=True, slots=True)
class SleptTurns:
    """The turns, as they ended, whose answers have slept."""

    _turns: dict[PastTurn, Slept] = field(default_factory=dict)
    _written: defaultdict[PastTurn, dict[PastTurn, None]] = field(default_factory=lambda: defaultdict(dict))
    """With the results of its calls, which the guard removes from the turn of what it has blocked."""
    _ended: dict[PastTurn, int] = field(default_factory=dict)

    def add(
        self, histories: list[list[PastTurn]], request: dict, slept: Slept, as_kept: Callable[[PastTurn], PastTurn]
    ) -> list[list[PastTurn]]:
        """The histories that end in the turn. An erasure has hidden one that is not kept: it was there until then."""
        if not slept.is_kept:
            prompt = request.get("prompt") or ""
            histories = [[*one[:-1], one[-1]._replace(prompt=prompt)] for one in histories]
        for written in (one[-1] for one in histories):
            self._turns[as_kept(written)] = slept
            self._written[as_kept(written)][written] = None
        return histories

    def end(self, histories: list[list[PastTurn]], at: int) -> None:
        """The turn in which these end is over."""
        self._ended.update((one[-1], at) for one in histories)

    def orders(self, turns: Sequence[PastTurn], most: int, begun_at: int) -> Iterator[Sequence[PastTurn]]:
        """In which a request that had its first token by `begun_at` may have found the newest of these turns."""
        slept = [self._turns[one] for one in turns if one in self._turns]
        if not any(one.is_hidden for one in slept) and (len(turns) <= most or not slept):
            yield turns[-most:]
            return
        row: list[PastTurn] = []
        came = ((at, place) for place, one in enumerate(turns) for at in self._came(one) if at <= begun_at)
        for _, place in sorted(came):
            row = [*row, *([] if turns[place] in row else [turns[place]])][-most:]
        yield row

    def _came(self, turn: PastTurn) -> Iterator[int]:
        """When the turn was put into its conversation: at its end, and when its answer fell asleep first."""
        slept = self._turns.get(turn)
        yield from () if slept is None or not slept.since else (min(slept.since.values()),)
        yield from () if turn not in self._ended else (self._ended[turn],)

    def as_seen(self, turns: Sequence[PastTurn], at: int, begun_at: int) -> Iterator[list[PastTurn]]:
        """The histories that a request may have read that was sent `at` and had its first token by `begun_at`."""
        forms = (list(dict.fromkeys(self._forms(one, at, begun_at))) for one in turns)
        seen = (list(one) for one in islice(product(*forms), _MOST_SEEN))
        return ([turn for turn in one if turn is not None] for one in seen)

    def _forms(self, turn: PastTurn, at: int, begun_at: int) -> Iterator[PastTurn | None]:
        slept = self._turns.get(turn)
        if slept is None or slept.ended_at - _CLOCKS_MS <= begun_at:
            yield turn if slept is None or slept.is_kept else None
        if slept is None or slept.ended_at < at:
            return
        for written in self._written[turn]:
            yield from _open_forms(written, slept, at, begun_at)
        # One that is awake has no turn until it ends.
        if slept.is_hidden or slept.since.get(AWAKE, math.inf) - _CLOCKS_MS <= begun_at:
            yield None


def _open_forms(turn: PastTurn, slept: Slept, at: int, begun_at: int) -> Iterator[PastTurn]:
    rounds = [(number, step) for number, step in enumerate(turn.steps) if step.calls]
    for number, step in rounds:
        behind = [call.id for place, one in rounds if place > number for call in one.calls]
        later = [slept.since[name] for name in behind if name in slept.since]
        since = slept.since.get(step.calls[0].id)
        if since is None or since - _CLOCKS_MS > begun_at or min(later, default=at) + _CLOCKS_MS < at:
            continue
        waits = (ChatMessage("tool", OPEN.format(one.name), call_id=one.id, name=one.name) for one in step.calls)
        yield turn._replace(answer="", steps=(*turn.steps[: number + 1], *waits))
