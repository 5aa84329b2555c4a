"""A limited number of slots. No owner may hold so many that others find none.

An answer that runs is not stopped for another one. So who holds all slots with long answers makes everybody wait for
their ends, however fair the order of those that wait. Here the most that one owner may hold depends on what is free:
`SHARE` times as much, and the last free slot is for an owner who holds none. Of 64 slots an owner gets 48 when it is
alone, a second one 12 of the other 16, a third one 3; of two slots one, and of a single slot that one. (Dynamic
thresholds: A. K. Choudhury and E. L. Hahne, IEEE/ACM Transactions on Networking 6(2), 1998, for buffers of a switch.)

A tenant's users share what the tenant may hold by the same rule: the first one gets 36 of 48.
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

    def refused(self, owners: Owners) -> Owner | None:
        """The owner who may hold no more slots for now; None if there is none. Ask while some are free."""
        free = self.free
        for owner in owners:
            free = further(self._held[owner], free)
            if not free:
                return owner
        return None

    def hold(self, owners: Owners) -> None:
        self.free -= 1
        self._held.update(owners)

    def release(self, owners: Owners) -> None:
        self.free += 1
        for owner in owners:
            self._held[owner] -= 1
            if not self._held[owner]:
                del self._held[owner]


def further(held: int, free: int) -> int:
    """The number of slots that an owner may add to its `held` ones, if `free` are free and no other owner adds any."""
    least = 1 if not held and free > 0 else 0
    return max(least, (SHARE * free - held) // (SHARE + 1))
