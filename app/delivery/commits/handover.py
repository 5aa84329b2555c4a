"""What a partition's owner commits in the metadata of the `requests` offset; of the other topics' offsets, `a` alone.

Layout: JSON, `{"v":1,"e":epoch,"t":tokens_offset,"f":floor,"a":[gap,run,...],"l":lost_epoch,"m":[name,...]}`.

- `e`: epoch of the owner that committed. An owner that was disconnected compares it to find out whether it has a
  successor, before it writes anything (see ownership.py).
- `t`: the oldest open answer began at or after this offset of the same-numbered `tokens` partition. A new owner reads
  from there. An offset is used because timestamps depend on a producer's clock.
- `f`: the newest epoch that began before `t`, -1 if there is none. A reader that starts at `t` does not see that fence,
  and must drop late events of older epochs all the same.
- `a`: offsets finished ahead of the committed one: from there, skip `gap` offsets, then `run` offsets are finished, and
  so on.
- `l`: if `tokens` was created anew, the highest epoch that its readers may have seen before; -1 otherwise.
- `m`: the names of the models that the owner serves, the default one first. Gateways list them.

Kafka rejects metadata of more than 4,096 bytes (`offset.metadata.max.bytes`). Runs that do not fit are left out, the
highest offsets first. After a crash those records are recognized by the table of ended requests; a dead letter among
them may be written twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import msgspec
from aiokafka.structs import OffsetAndMetadata

MAX_BYTES = 4000
MAX_MODELS_BYTES = 1000
MAX_AHEAD = 10_000_000


@dataclass(frozen=True, slots=True)
class Handover:
    """`head` is the committed offset itself, -1 if nothing was committed yet."""

    head: int = -1
    epoch: int = -1
    tokens_offset: int = 0
    floor: int = -1
    ahead: tuple[int, ...] = ()
    lost_epoch: int = -1
    models: tuple[str, ...] = ()


class _Metadata(msgspec.Struct, omit_defaults=True):
    v: int
    e: int
    t: int
    f: int
    a: list[int]
    l: int = -1  # noqa: E741
    m: tuple[str, ...] = ()


def encode_metadata(handover: Handover) -> str:
    runs, models = _runs(handover.head, handover.ahead), _fitting(handover.models)
    while True:
        raw = msgspec.json.encode(
            _Metadata(1, handover.epoch, handover.tokens_offset, handover.floor, runs, handover.lost_epoch, models)
        )
        if len(raw) <= MAX_BYTES:
            return raw.decode()
        runs = runs[: max(0, len(runs) - 2 - (len(raw) - MAX_BYTES) // 8 * 2)]


def decode_handover(head: int, metadata: str) -> Handover:
    """Parse the metadata. Foreign metadata (after a manual offset reset, for example) reads as none: requests from
    there on are answered anew.
    """
    if head < 0:
        return Handover()
    stored = _stored(metadata)
    if stored is None:
        return Handover(head=head)
    ahead: list[int] = []
    at = head
    for gap, run in zip(stored.a[::2], stored.a[1::2], strict=True):
        ahead.extend(range(at + gap, at + gap + run))
        at += gap + run
    return Handover(head, stored.e, stored.t, stored.f, tuple(ahead), stored.l, stored.m)


def finished_ahead(metadata: str) -> int:
    """How many offsets are finished ahead of the committed one."""
    stored = _stored(metadata)
    return 0 if stored is None else sum(stored.a[1::2])


def models_served(metadata: str) -> tuple[str, ...]:
    """The names of the models that the owner served when it committed this."""
    stored = _stored(metadata)
    return () if stored is None else stored.m


def served(committed: Iterable[OffsetAndMetadata]) -> list[str]:
    """The names of the models that the owners of these partitions serve; offsets that others have set have none."""
    return [*dict.fromkeys(name for one in committed for name in models_served(one.metadata or ""))]


def are_all_stated(models: Iterable[str]) -> bool:
    """Whether owners who state these serve no others: names that have no room are left out."""
    return sum(len(msgspec.json.encode(name)) + 1 for name in models) <= MAX_MODELS_BYTES // 2


def _stored(metadata: str) -> _Metadata | None:
    try:
        stored = msgspec.json.decode(metadata, type=_Metadata)
    except msgspec.MsgspecError:
        return None
    if stored.v != 1 or len(stored.a) % 2 or min(stored.a, default=0) < 0 or sum(stored.a[1::2]) > MAX_AHEAD:
        return None
    return stored


def _fitting(models: Sequence[str]) -> tuple[str, ...]:
    """The first names, as many as have room."""
    size, kept = 0, []
    for name in models:
        size += len(msgspec.json.encode(name)) + 1
        if size > MAX_MODELS_BYTES:
            break
        kept.append(name)
    return tuple(kept)


def _runs(head: int, ahead: Sequence[int]) -> list[int]:
    runs: list[int] = []
    at = head
    for offset in sorted(ahead):
        if runs and offset == at:
            runs[-1] += 1
        else:
            runs += [offset - at, 1]
        at = offset + 1
    return runs


@dataclass(slots=True)
class Offsets:
    """Which records of a partition are open, and which offset may be committed.

    Records finish in any order. Beside the head (the first open offset, which is committed), the handover therefore
    lists the offsets that finished ahead of it. After a crash, the records from the head on are read again, and
    finished ones are recognized by their offset. Offsets may have holes, left by compaction and transaction markers.
    `next` is the offset after the newest accepted record. Of records that are parked, only the least offset is known
    here (`first_parked`).
    """

    next: int
    first_parked: Callable[[], int | None] = lambda: None
    _ahead: set[int] = field(default_factory=set)
    _open: dict[int, int] = field(default_factory=dict)

    @classmethod
    def resume(cls, head: int, ahead: Iterable[int] = ()) -> Offsets:
        return cls(next=head, _ahead=set(ahead))

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

    def began(self, offset: int) -> int:
        return self._open[offset]

    def park(self, offset: int) -> None:
        """The open record is parked: nothing is written for it before it is read again."""
        del self._open[offset]

    def unpark(self, offset: int, tokens_offset: int) -> None:
        self._open[offset] = tokens_offset

    @property
    def finished_ahead(self) -> frozenset[int]:
        return frozenset(self._ahead)

    def skip_to(self, offset: int) -> bool:
        """No record before this offset will come that is not open; whether that was unknown."""
        is_new = offset > self.next
        self.next = max(self.next, offset)
        return is_new

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
        parked = self.first_parked()
        still_open = [one for one in self._open if one not in finishing] + ([] if parked is None else [parked])
        if still_open:
            return min(still_open)
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
