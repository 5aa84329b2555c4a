"""Backoff between retries, logged once a minute instead of at each retry."""

from __future__ import annotations

import asyncio
import logging
import time

log = logging.getLogger(__name__)

_FIRST_S = 0.1
_LONGEST_S = 5.0
_SAY_EVERY_S = 60.0


class Backoff:
    def __init__(self) -> None:
        self.trouble = ""
        self._next_s = _FIRST_S
        self._since = 0.0
        self._said = 0.0

    async def wait(self, error: Exception) -> None:
        now = time.monotonic()
        if not self.trouble:
            self._since = now
        if not self.trouble or now - self._said >= _SAY_EVERY_S:
            self._said = now
            log.warning("history: %s; retrying, nothing is lost", error)
        self.trouble = str(error)
        await asyncio.sleep(self._next_s)
        self._next_s = min(self._next_s * 2, _LONGEST_S)

    def over(self) -> None:
        if self.trouble:
            log.info("history: Milvus accepts rows again, after %.0f s", time.monotonic() - self._since)
        self.trouble = ""
        self._next_s = _FIRST_S
