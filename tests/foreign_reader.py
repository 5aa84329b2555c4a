"""The rule of docs/foreign-records.md for readers of one record a token: what an answer is, from its records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Read:
    """One answer. `parts` are the index, the number of tokens and the text of what is kept, `gaps` what was missing."""

    epoch: int = -1
    parts: list[tuple[int, int, str]] = field(default_factory=list)
    end: str | None = None
    gaps: int = 0

    @property
    def text(self) -> str:
        return "".join(text for _, _, text in self.parts)

    def add(self, record: Mapping[str, Any]) -> None:
        """The fields are `index`, `tokens`, `text`, `epoch`, and `finish_reason` or `error` of the end."""
        if record["epoch"] < self.epoch:
            return
        if record["epoch"] > self.epoch:
            self.epoch, self.end = record["epoch"], None
            self.parts = [part for part in self.parts if part[0] < record["index"]]
        behind = self.parts[-1][0] + self.parts[-1][1] if self.parts else 0
        self.gaps += record["index"] != behind
        self.parts.append((record["index"], len(record["tokens"] or ()), record["text"] or ""))
        self.end = record["finish_reason"] or record["error"]


def read(records: Iterable[Mapping[str, Any]]) -> dict[Any, Read]:
    """The answers, by the `id` of their records."""
    answers: dict[Any, Read] = {}
    for record in records:
        answers.setdefault(record["id"], Read()).add(record)
    return answers
