"""Cancels that arrived before their request: topics have no common order, so the request may still be on its way.

It may also wait in its topic for longer than a cancel is usually remembered: behind the user's others, or because no
worker ran. So a cancel is forgotten only once all requests that were sent before it have been answered.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace

from app.delivery.accepted import RequestKey
from app.wire.ids import tenant_of
from models.interface.fair_slots import FairSlots, Payer, Payers, payers_of

REMEMBERED_S = 300.0
_AGAIN_S = 10.0
MOST = 16_384


@dataclass(frozen=True, slots=True)
class _Remembered:
    commit: Callable[[], None]
    may_come: Callable[[], bool]
    payers: Payers
    expiry: asyncio.TimerHandle


class Cancels:
    """Remembers each cancel for five minutes, and longer while its request `may_come`; `commit` is called when it is
    used or dropped.

    The cancel's record stays uncommitted until then, so it is read again after a restart. Tenants and users
    share `MOST` places (fair_slots.py); one that has too many cancels loses its oldest. A user may cancel
    thousands of parked requests.
    """

    def __init__(self) -> None:
        self.remembered: dict[RequestKey, _Remembered] = {}
        self._of_payer: defaultdict[Payer, dict[RequestKey, None]] = defaultdict(dict)
        self._slots = FairSlots(MOST)

    def remember(
        self,
        key: RequestKey,
        commit: Callable[[], None],
        may_come: Callable[[], bool] = lambda: False,
        for_s: float = REMEMBERED_S,
    ) -> None:
        self._forget(key)
        payers = payers_of(tenant_of(key[0]) or "", key[0])
        if (refused := self._slots.refused(payers)) is not None:
            self._forget(next(iter(self._of_payer.get(refused) or self.remembered)))
        expiry = asyncio.get_running_loop().call_later(max(0.0, for_s), self._expire, key)
        self.remembered[key] = _Remembered(commit, may_come, payers, expiry)
        self._slots.hold(payers)
        for payer in payers:
            self._of_payer[payer][key] = None

    def pop(self, key: RequestKey) -> Callable[[], None] | None:
        """The `commit` of the request's cancel, to be called once that has ended; None if it was not cancelled."""
        remembered = self.remembered.pop(key, None)
        if remembered is None:
            return None
        remembered.expiry.cancel()
        self._slots.release(remembered.payers)
        for payer in remembered.payers:
            del self._of_payer[payer][key]
            if not self._of_payer[payer]:
                del self._of_payer[payer]
        return remembered.commit

    def _expire(self, key: RequestKey) -> None:
        remembered = self.remembered[key]
        if remembered.may_come():
            expiry = asyncio.get_running_loop().call_later(_AGAIN_S, self._expire, key)
            self.remembered[key] = replace(remembered, expiry=expiry)
        else:
            self._forget(key)

    def _forget(self, key: RequestKey) -> None:
        if commit := self.pop(key):
            commit()
