"""Which records of a `requests` partition are open, and what may be committed.

Records finish in any order, so beside the head (the first open offset, the one to commit) a checkpoint carries the
offsets that finished ahead of it. After a crash the records from the head on come again; those are known by their
offset, whatever became of their contents.

Offsets may have holes: compaction and transaction markers make them. A hole is a lost record only if the consumer was
handed something of it: then the record before the hole is not the last one that was taken.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


class LostRecordError(Exception):
    """A record was handed to this worker and never arrived; it must be read again, by a worker that starts anew."""


@dataclass(slots=True)
class Offsets:
    """Bookkeeping of one partition. `next` is the offset after the newest record taken."""

    next: int
    _ahead: set[int] = field(default_factory=set)
    _open: dict[int, int] = field(default_factory=dict)

    @classmethod
    def resume(cls, head: int, ahead: Iterable[int] = ()) -> Offsets:
        return cls(next=head, _ahead=set(ahead))

    @property
    def open(self) -> int:
        return len(self._open)

    def take(self, offset: int, tokens_offset: int, after: int = -1) -> bool:
        """Open a record; False if it was taken before or is finished.

        `tokens_offset`: no event of its answer stands before this offset of the `tokens` partition. `after`: the
        offset that was handed to the consumer before this one.
        """
        if offset < self.next:
            return False
        if after >= self.next:
            raise LostRecordError(f"offset {after} was handed out and did not arrive; expected {self.next}")
        self.next = offset + 1
        if offset in self._ahead:
            return False
        self._open[offset] = tokens_offset
        return True

    def finish(self, offsets: Iterable[int]) -> None:
        for offset in offsets:
            del self._open[offset]
            self._ahead.add(offset)
        head = self.head()
        self._ahead = {offset for offset in self._ahead if offset >= head}

    def head(self, finishing: Iterable[int] = ()) -> int:
        """What to commit if `finishing` were finished too."""
        finishing = frozenset(finishing)
        # Records are opened in offset order, so the first that stays open is the least.
        return next((offset for offset in self._open if offset not in finishing), self.next)

    def ahead(self, finishing: Iterable[int] = ()) -> list[int]:
        """Offsets at or after that head that are finished, ascending."""
        finishing = frozenset(finishing)
        head = self.head(finishing)
        return sorted(offset for offset in self._ahead | finishing if offset >= head)

    def tokens_from(self, finishing: Iterable[int] = ()) -> int | None:
        """Least `tokens_offset` of what stays open; None if nothing does."""
        finishing = frozenset(finishing)
        return min((began for offset, began in self._open.items() if offset not in finishing), default=None)
