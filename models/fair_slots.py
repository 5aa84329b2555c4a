"""A limited number of slots, of which nobody may hold so many that others find none.

An answer that runs is not stopped for another one. So who holds all slots with long answers makes everybody wait for
their ends, however fair the order of those that wait. Here the most that one owner may hold depends on what is free:
`SHARE` times as much, and the last free slot is for an owner who holds none. Of 64 slots an owner gets 48 when it is
alone, a second one 12 of the other 16, a third one 3; of two slots one, and of a single slot that one. (Dynamic
thresholds: A. K. Choudhury and E. L. Hahne, IEEE/ACM Transactions on Networking 6(2), 1998, for buffers of a switch.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

SHARE = 3

Owner = Hashable
Owners = Sequence[Owner]
"""Whom a slot is held for: a user, or a tenant and then its user. The same rule holds for each of them."""


def owners_of(tenant: str, user: str) -> Owners:
    """Without those that have no name: nobody's limit applies to them."""
    names = ((tenant,), (tenant, user))
    return tuple(name for name in names if name[-1])


class FairSlots:
    """Who holds how many of `count` slots. More than `count` may be held: `hold` does not ask."""

    def __init__(self, count: int) -> None:
        self.free = count
        self._held: Counter[Owner] = Counter()

    def refused(self, owners: Owners) -> Owner | None:
        """The owner who may hold no more slots for now; None if there is none. Ask while some are free."""
        return next((owner for owner in owners if not has_share(self._held[owner], self.free)), None)

    def hold(self, owners: Owners) -> None:
        self.free -= 1
        self._held.update(owners)

    def release(self, owners: Owners) -> None:
        self.free += 1
        for owner in owners:
            self._held[owner] -= 1
            if not self._held[owner]:
                del self._held[owner]


def has_share(held: int, free: int) -> bool:
    """Whether an owner of `held` slots may hold one more, if `free` are free."""
    return not held or held < SHARE * (free - 1)


def most_of_one(count: int) -> int:
    """How many of `count` slots an owner may hold alone."""
    return next(held for held in range(1, count + 1) if held == count or not has_share(held, count - held))
