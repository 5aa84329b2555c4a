"""What a partition's owner commits in the metadata of the `requests` offset; of the other topics' offsets, `a` alone.

Layout: JSON in ASCII, `{"v":1,"e":epoch,"t":tokens_offset,"f":floor,"a":[gap,run,...],"l":lost_epoch}`.

- `e`: epoch of the owner that committed. An owner that was disconnected compares it to find out whether it has a
  successor, before it writes anything (see ownership.py).
- `t`: the oldest open answer began at or after this offset of the same-numbered `tokens` partition. A new owner reads
  from there. An offset is used because timestamps depend on a producer's clock.
- `f`: the newest epoch that began before `t`, -1 if there is none. A reader that starts at `t` does not see that fence,
  and must drop late events of older epochs all the same.
- `a`: offsets finished ahead of the committed one: from there, skip `gap` offsets, then `run` offsets are finished, and
  so on.
- `l`: if `tokens` was created anew, the highest epoch that its readers may have seen before; -1 otherwise.

Kafka rejects metadata of more than 4,096 bytes (`offset.metadata.max.bytes`). Runs that do not fit are left out, the
highest offsets first. After a crash those records are recognized by the table of ended requests; a dead letter among
them may be written twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

MAX_BYTES = 4000
MAX_AHEAD = 10_000_000


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """`head` is the committed offset itself, -1 if nothing was committed yet."""

    head: int = -1
    epoch: int = -1
    tokens_offset: int = 0
    floor: int = -1
    ahead: tuple[int, ...] = ()
    lost_epoch: int = -1


class _Metadata(msgspec.Struct, omit_defaults=True):
    v: int
    e: int
    t: int
    f: int
    a: list[int]
    l: int = -1  # noqa: E741


def encode_metadata(checkpoint: Checkpoint) -> str:
    runs = _runs(checkpoint.head, checkpoint.ahead)
    while True:
        raw = msgspec.json.encode(
            _Metadata(1, checkpoint.epoch, checkpoint.tokens_offset, checkpoint.floor, runs, checkpoint.lost_epoch)
        )
        if len(raw) <= MAX_BYTES:
            return raw.decode("ascii")
        runs = runs[: max(0, len(runs) - 2 - (len(raw) - MAX_BYTES) // 8 * 2)]


def decode_checkpoint(head: int, metadata: str) -> Checkpoint:
    """Parse the metadata. Foreign metadata (after a manual offset reset, for example) reads as none: requests from
    there on are answered anew.
    """
    if head < 0:
        return Checkpoint()
    stored = _stored(metadata)
    if stored is None:
        return Checkpoint(head=head)
    ahead: list[int] = []
    at = head
    for gap, run in zip(stored.a[::2], stored.a[1::2], strict=True):
        ahead.extend(range(at + gap, at + gap + run))
        at += gap + run
    return Checkpoint(head, stored.e, stored.t, stored.f, tuple(ahead), stored.l)


def finished_ahead(metadata: str) -> int:
    """How many offsets are finished ahead of the committed one."""
    stored = _stored(metadata)
    return 0 if stored is None else sum(stored.a[1::2])


def _stored(metadata: str) -> _Metadata | None:
    try:
        stored = msgspec.json.decode(metadata, type=_Metadata)
    except msgspec.MsgspecError:
        return None
    if stored.v != 1 or len(stored.a) % 2 or min(stored.a, default=0) < 0 or sum(stored.a[1::2]) > MAX_AHEAD:
        return None
    return stored


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
