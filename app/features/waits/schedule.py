"""When the answers of one ownership that sleep are to be woken, and how many sleep."""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from dataclasses import dataclass, field

from app.delivery.accepted import RequestKey
from app.delivery.sleepers import Sleepers
from app.policy.file import WaitRules
from tables.asleep import Head

SOON_MS = 90_000
"""What is due within this time is known without a scan, of which there is one each minute."""


@dataclass(slots=True)
class Count:
    """How many slept when they were last scanned, and have fallen asleep since, and how many bytes they take, and since
    when the oldest waits.
    """

    answers: int = 0
    size: int = 0
    oldest: int | None = None
    of_tenant: Counter[str | None] = field(default_factory=Counter)

    def add(self, head: Head) -> None:
        self.answers += 1
        self.size += head.size
        self.oldest = head.since if self.oldest is None else min(self.oldest, head.since)
        self.of_tenant[head.tenant] += 1

    def has_room(self, tenant: str | None, rules: WaitRules) -> bool:
        """Whether one more of the tenant may sleep."""
        return self.used(rules) < 1 and self.of_tenant[tenant] < rules.per_tenant

    def used(self, rules: WaitRules) -> float:
        """Which part of the room of a partition is used."""
        return max(self.answers / rules.per_partition, self.size / (rules.mb_per_partition << 20))


class Schedule:
    """`changed` is set when something is due sooner than was known; `count` is None until a scan has counted."""

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self.count: Count | None = None
        self._due: list[tuple[int, RequestKey]] = []

    def add(self, key: RequestKey, head: Head) -> None:
        """An answer falls asleep."""
        if self.count is not None:
            self.count.add(head)
        self.watch(key, head, head.slept_at)

    def watch(self, key: RequestKey, head: Head, now: int) -> None:
        """Note when it is to be woken, if that is soon."""
        if head.until - now <= SOON_MS:
            heapq.heappush(self._due, (head.until, key))
            self.changed.set()

    @property
    def next_due(self) -> int | None:
        """When the next one is to be woken, Unix milliseconds; None if that is not soon."""
        return self._due[0][0] if self._due else None

    def pop_due(self, sleepers: Sleepers, now: int) -> list[RequestKey]:
        """Those that have to be woken by now."""
        keys: dict[RequestKey, None] = {}
        while self._due and self._due[0][0] <= now:
            keys[heapq.heappop(self._due)[1]] = None
        heads = {key: sleepers.head(key) for key in keys}
        return [key for key, head in heads.items() if head is not None and head.is_due(now)]
