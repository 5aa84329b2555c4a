"""Which records of a `requests` partition are open, and which offset may be committed.

Records finish in any order. Beside the head (the first open offset, which is committed), the checkpoint therefore lists
the offsets that finished ahead of it. After a crash, the records from the head on are read again, and finished ones are
recognized by their offset.

Offsets may have holes, left by compaction and transaction markers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Offsets:
    """The bookkeeping of one partition. `next` is the offset after the newest accepted record."""

    next: int
    _ahead: set[int] = field(default_factory=set)
    _open: dict[int, int] = field(default_factory=dict)

    @classmethod
    def resume(cls, head: int, ahead: Iterable[int] = ()) -> Offsets:
        return cls(next=head, _ahead=set(ahead))

    @property
    def open(self) -> int:
        return len(self._open)

    def add(self, offset: int, tokens_offset: int) -> bool:
        """Open a record; False if it was opened before or is finished.

        `tokens_offset`: no event of its answer is before this offset of the `tokens` partition.
        """
        if offset < self.next:
            return False
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
        self.next = max(self.next, head)
        self._ahead = {offset for offset in self._ahead if offset >= head}

    def head(self, finishing: Iterable[int] = ()) -> int:
        """The offset to commit if `finishing` were finished too.

        Behind the newest record, what a former owner has finished is passed at once: nothing would be committed for it
        when it is delivered, and the group would lag behind an idle partition for ever.
        """
        finishing = frozenset(finishing)
        # Records are opened in offset order, so the first that stays open has the least.
        for offset in self._open:
            if offset not in finishing:
                return offset
        head = self.next
        while head in self._ahead:
            head += 1
        return head

    def ahead(self, finishing: Iterable[int] = ()) -> list[int]:
        """Finished offsets at or after that head, ascending."""
        finishing = frozenset(finishing)
        head = self.head(finishing)
        return sorted(offset for offset in self._ahead | finishing if offset >= head)

    def tokens_from(self, finishing: Iterable[int] = ()) -> int | None:
        """Least `tokens_offset` of the records that stay open; None if there is none."""
        finishing = frozenset(finishing)
        return min((began for offset, began in self._open.items() if offset not in finishing), default=None)
