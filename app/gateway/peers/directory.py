"""Which gateway owns which partition."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from app.wire.ids import partition_for


class Directory:
    """The owners' addresses by partition. Without sharing, every partition belongs to this gateway."""

    def __init__(self, partitions: int, address: str | None = None) -> None:
        self.partitions = partitions
        self._address = address
        self._owners: Mapping[int, str] = {}
        self._changed = asyncio.Event()

    @property
    def is_shared(self) -> bool:
        return self._address is not None

    @property
    def is_known(self) -> bool:
        return not self.is_shared or bool(self._owners)

    def replace(self, owners: Mapping[int, str]) -> None:
        self._owners = dict(owners)
        self.wake()

    def wake(self) -> None:
        """Wake everything that waits for an owner."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def changed(self, within_s: float) -> None:
        """Wait for the next change or `wake`, but no longer than that."""
        changed = self._changed
        try:
            async with asyncio.timeout(within_s):
                await changed.wait()
        except TimeoutError:
            return

    def elsewhere(self, name: str) -> bool:
        """Whether a user (or a tenant) belongs to another gateway, or to none that is known yet."""
        return self.is_shared and self.owner(name) != self._address

    def owner(self, name: str) -> str | None:
        """The address of the gateway that owns a user's partition; None while no gateway does."""
        return self._owners.get(partition_for(name, self.partitions))
