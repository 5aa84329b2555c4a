"""What a part of the benchmark finds: a table, claims with their measured value, and what is plotted."""

from __future__ import annotations

from typing import Literal

import msgspec


class Claim(msgspec.Struct, frozen=True):
    """A figure that was promised: `value` must be at most, or at least, `target`."""

    text: str
    value: float
    bound: Literal["<=", ">="]
    target: float

    @property
    def kept(self) -> bool:
        return self.value <= self.target if self.bound == "<=" else self.value >= self.target


class Series(msgspec.Struct, frozen=True):
    label: str
    x: list[float | str]
    y: list[float]


class Plot(msgspec.Struct, frozen=True):
    title: str
    x: str
    y: str
    series: list[Series]
    log: bool = False
    line: float | None = None  # a target


class Result(msgspec.Struct):
    part: str
    title: str
    columns: list[str]
    rows: list[list[str | float | int]] = []
    claims: list[Claim] = []
    plots: list[Plot] = []
    notes: list[str] = []
