"""A limited number of slots. No owner may hold so many that others find none.

An answer that runs is not stopped for another one. So who holds all slots with long answers makes everybody wait for
their ends, however fair the order of those that wait. Here the most that one owner may hold depends on what is free:
`SHARE` times as much, and the last free slot is for an owner who holds none. Of 64 slots an owner gets 48 when it is
alone, a second one 12 of the other 16, a third one 3; of two slots one, and of a single slot that one. (Dynamic
thresholds: A. K. Choudhury and E. L. Hahne, IEEE/ACM Transactions on Networking 6(2), 1998, for buffers of a switch.)

A tenant's users share what the tenant may hold by the same rule: the first one gets 36 of 48. Bytes of memory are
slots, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

SHARE = 3

Owner = Hashable
Owners = Sequence[Owner]
"""Whom a slot is held for: a user, or a tenant and then its user."""


def owners_of(tenant: str, user: str) -> Owners:
    """The tenant and the user, as far as they have names. What has no owner has no limit of its own."""
    names = ((tenant,), (tenant, user))
    return tuple(name for name in names if name[-1])


class FairSlots:
    """Who holds how many of `count` slots. More than `count` may be held: `hold` does not ask."""

    def __init__(self, count: int) -> None:
        self.free = count
        self._held: Counter[Owner] = Counter()

    def held(self, owner: Owner) -> int:
        return self._held[owner]

    def refused(self, owners: Owners) -> Owner | None:
        """The owner who may hold no more slots for now; None if there is none. Ask while some are free."""
        free = self.free
        for owner in owners:
            free = further(self._held[owner], free)
            if not free:
                return owner
        return None

    def may_double(self, owners: Owners) -> bool:
        """Whether each of the owners may hold at least one more, and twice as many as now."""
        free = self.free
        for owner in owners:
            held = self._held[owner]
            free = further(held, free)
            if free < max(1, held):
                return False
        return True

    def hold(self, owners: Owners, count: int = 1) -> None:
        self.free -= count
        for owner in owners:
            self._held[owner] += count

    def release(self, owners: Owners, count: int = 1) -> None:
        self.free += count
        for owner in owners:
            self._held[owner] -= count
            if not self._held[owner]:
                del self._held[owner]


def further(held: int, free: int) -> int:
    """The number of slots that an owner may add to its `held` ones, if `free` are free and no other owner adds any."""
    least = 1 if not held and free > 0 else 0
    return max(least, (SHARE * free - held) // (SHARE + 1))
