"""How many threads compute a step, found out while the engine works.

On two idle cores, two threads make a step of Gemma 3 270M 1.6 times as fast. Beside other work the first one waits at
each of a hundred products until the second one has a core: a step has then taken fifty times as long. What a worker
measures at its start says little about an hour later. So steps with one count and the other take turns now and then,
and at once where a step mostly waits. Threads change no bit of an answer (models/weights/choice.py).
"""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

log = logging.getLogger(__name__)

PAIRS, MOST_STEPS = 6, 40
"""Pairs of steps with about as many tokens, one by each count, that are compared; and steps until it is given up."""
WARM_UP = 2
"""Steps, one by each count, that are no measure."""
ALIKE = 0.125
GAIN = 1.15
"""More threads have to be that much faster: they take a core from others."""
HOPELESS = 4.0
"""A step that takes so many times as long ends the comparison."""
FIRST_REST_S, LONGEST_REST_S = 1.0, 60.0
"""Seconds of steps between comparisons; each that changes nothing doubles them."""
WAITS, MOST_WAITS = 2.0, 4
"""A step waits if the clock's time is more than so many times the processor's; after so many, counts are compared."""


class Threads:
    """Belongs to the engine's thread, which calls `prepare` once, `begin` before each step and `end` after it."""

    def __init__(
        self,
        few: int,
        many: int,
        count: int,
        apply: Callable[[int], None] = torch.set_num_threads,
        clock: Callable[[], float] = time.perf_counter,
        own: Callable[[], float] = time.thread_time,
    ) -> None:
        """`count`, with which it begins, is `few` or `many`; if they are one, nothing is compared."""
        self.count = count
        self._few, self._many = few, many
        self._apply, self._clock, self._own = apply, clock, own
        self._applied = 0
        self._rest = self._due = FIRST_REST_S
        self._waits = 0
        self._comparison: _Comparison | None = None
        self._began = (0.0, 0.0)

    @property
    def possible(self) -> tuple[int, int]:
        return self._few, self._many

    def prepare(self) -> None:
        """Before the first step: with few, which wait for no core that others have."""
        self._use(self._few)

    def begin(self) -> None:
        tries_other = self._comparison is not None and self._comparison.tries_other
        self._use(self._few + self._many - self.count if tries_other else self.count)
        if self._few != self._many:
            self._began = self._clock(), self._own()

    def end(self, tokens: int) -> None:
        """The step had so many tokens."""
        if self._few == self._many:
            return
        seconds, worked = self._clock() - self._began[0], self._own() - self._began[1]
        if self._comparison is not None:
            self._compare(self._comparison, tokens, seconds)
            return
        self._due -= seconds
        waits = self.count == self._many and seconds > WAITS * worked
        self._waits = self._waits + 1 if waits else 0
        if self._due <= 0 or self._waits == MOST_WAITS:
            self._comparison = _Comparison()

    def _use(self, count: int) -> None:
        if count != self._applied:
            self._apply(count)
            self._applied = count

    def _compare(self, comparison: _Comparison, tokens: int, seconds: float) -> None:
        gain = comparison.gain(tokens, seconds)
        if gain is None:
            return
        self._comparison, self._waits = None, 0
        if gain < (GAIN if self.count == self._few else 1.0):
            self._rest = min(LONGEST_REST_S, 2 * self._rest)
        else:
            before, self.count = self.count, self._few + self._many - self.count
            self._rest = FIRST_REST_S
            log.info("%d threads are %.2f times as fast as %d now, and compute", self.count, gain, before)
        self._due = self._rest


class _Comparison:
    """Steps of the present count and the other one in turns. Each is compared with one of about as many tokens."""

    def __init__(self) -> None:
        self._steps = 0
        self._unmatched: tuple[list[_Timed], list[_Timed]] = ([], [])
        self._gains: list[float] = []

    @property
    def tries_other(self) -> bool:
        """In the order 0, 1, 1, 0: steps that differ by turns, and a machine that slows down, favour neither."""
        return self._steps % 4 in (1, 2)

    def gain(self, tokens: int, seconds: float) -> float | None:
        """How many times as fast the other count is, once that is known; 0 if it cannot be known."""
        is_other = self.tries_other
        self._steps += 1
        if self._steps > WARM_UP:
            self._match(is_other, _Timed(tokens, seconds))
        if self._gains and self._gains[-1] * HOPELESS < 1:
            return self._gains[-1]
        if len(self._gains) == PAIRS:
            return statistics.median(self._gains)
        return 0.0 if self._steps >= MOST_STEPS else None

    def _match(self, is_other: bool, step: _Timed) -> None:
        waiting = self._unmatched[not is_other]
        for at, one in enumerate(waiting):
            if abs(one.tokens - step.tokens) <= ALIKE * step.tokens:
                del waiting[at]
                present, other = (one, step) if is_other else (step, one)
                self._gains.append(present.seconds / other.seconds)
                return
        self._unmatched[is_other].append(step)


@dataclass(frozen=True, slots=True)
class _Timed:
    """A step."""

    tokens: int
    seconds: float
