"""A limited number of slots. No payer may hold so many that others find none.

An answer that runs is not stopped for another one. So who holds all slots with long answers makes everybody wait for
their ends, however fair the order of those that wait. Here the most that one payer may hold depends on what is free:
`SHARE` times as much, and the last free slot is for a payer who holds none. Of 64 slots a payer gets 48 when it is
alone, a second one 12 of the other 16, a third one 3; of two slots one, and of a single slot that one. (Dynamic
thresholds: A. K. Choudhury and E. L. Hahne, IEEE/ACM Transactions on Networking 6(2), 1998, for buffers of a switch.)

A tenant's users share what the tenant may hold by the same rule: the first one gets 36 of 48. Bytes of memory are
slots, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

SHARE = 3

Payer = Hashable
Payers = Sequence[Payer]
"""Whom a slot is held for: a user, or a tenant and then its user."""


def payers_of(tenant: str, user: str) -> Payers:
    """The tenant and the user, as far as they have names. What has no payer has no limit of its own."""
    names = ((tenant,), (tenant, user))
    return tuple(name for name in names if name[-1])


class FairSlots:
    """Who holds how many of `count` slots. More than `count` may be held: `hold` does not ask."""

    def __init__(self, count: int) -> None:
        self.free = count
        self._held: Counter[Payer] = Counter()

    def held(self, payer: Payer) -> int:
        return self._held[payer]

    def refused(self, payers: Payers) -> Payer | None:
        """The payer who may hold no more slots for now; None if there is none. Ask while some are free."""
        free = self.free
        for payer in payers:
            free = further(self._held[payer], free)
            if not free:
                return payer
        return None

    def may_double(self, payers: Payers) -> bool:
        """Whether each of the payers may hold at least one more, and twice as many as now."""
        free = self.free
        for payer in payers:
            held = self._held[payer]
            free = further(held, free)
            if free < max(1, held):
                return False
        return True

    def hold(self, payers: Payers, count: int = 1) -> None:
        self.free -= count
        for payer in payers:
            self._held[payer] += count

    def release(self, payers: Payers, count: int = 1) -> None:
        self.free += count
        for payer in payers:
            self._held[payer] -= count
            if not self._held[payer]:
                del self._held[payer]


def further(held: int, free: int) -> int:
    """The number of slots that a payer may add to its `held` ones, if `free` are free and no other payer adds any."""
    least = 1 if not held and free > 0 else 0
    return max(least, (SHARE * free - held) // (SHARE + 1))
