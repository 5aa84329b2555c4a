"""How long everything is measured. A full part takes five minutes at the most, a short one checks the machinery."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scale:
    """`seconds` is one round of one system at one load; figures are of all `rounds` together."""

    seconds: float
    rounds: int
    warm_up: float
    conversations: tuple[int, ...] = (1_000, 10_000, 100_000, 1_000_000)
    partitions: tuple[int, ...] = (1, 4, 16)
    at_once: tuple[int, ...] = (1, 8, 32)
    users: tuple[int, ...] = (8, 100, 5_000)
    history: tuple[int, ...] = (0, 3, 10)


FULL = Scale(seconds=10, rounds=3, warm_up=3)
SHORT = Scale(
    seconds=1,
    rounds=1,
    warm_up=1,
    conversations=(10, 500),
    partitions=(1,),
    at_once=(1, 2),
    users=(2,),
    history=(0, 1),
)
