"""The available models: those of the settings, and those that have answered in the last hour."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable

RECENT_S = 3600.0
_MOST_SEEN = 100


class ServedModels:
    """`clock`: monotonic seconds."""

    def __init__(self, configured: Iterable[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._configured = tuple(dict.fromkeys(configured))
        self._clock = clock
        self._seen: OrderedDict[str, float] = OrderedDict()

    def answered(self, version: str) -> None:
        self._seen[version] = self._clock()
        self._seen.move_to_end(version)
        if len(self._seen) > _MOST_SEEN:
            self._seen.popitem(last=False)

    def names(self) -> list[str]:
        """The configured models first, then the others by name."""
        since = self._clock() - RECENT_S
        recent = sorted(version for version, at in self._seen.items() if at >= since)
        return list(dict.fromkeys((*self._configured, *recent)))
