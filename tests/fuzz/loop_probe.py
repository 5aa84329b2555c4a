"""For how long a process's event loop does nothing else: its web server runs on it, and is asked all the time."""

from __future__ import annotations

import asyncio
import time

import httpx

_EVERY_S = 0.02
_PATIENCE_S = 60.0


class LoopProbe:
    """`longest_s` is the longest wait for a health check: an upper bound of the longest block of the loop."""

    def __init__(self, url: str) -> None:
        self.longest_s = 0.0
        self._url = url

    async def run(self) -> None:
        async with httpx.AsyncClient(timeout=_PATIENCE_S) as http:
            while True:
                began = time.monotonic()
                await http.get(self._url)
                self.longest_s = max(self.longest_s, time.monotonic() - began)
                await asyncio.sleep(_EVERY_S)
