"""The public keys of whoever signs the tokens, from a file or a URL, read again where a token names a new one."""

from __future__ import annotations

import asyncio
import time
import urllib.request
from pathlib import Path

import jwt

TIMEOUT_S = 5.0
REFRESH_S = 300.0
UNKNOWN_KEY_PAUSE_S = 30.0
"""A token can name any key: unknown names must not make the gateway ask all the time."""


class JwksUnavailableError(Exception):
    """The keys cannot be had now."""


class Jwks:
    def __init__(self, place: str) -> None:
        self._place = place
        self._keys: list[jwt.PyJWK] = []
        self._read_at = float("-inf")
        self._reading = asyncio.Lock()

    async def key(self, name: str | None) -> jwt.PyJWK | None:
        """The key of that name; a set of one key needs no name."""
        await self._refresh(REFRESH_S)
        found = self._find(name)
        if found is None:
            await self._refresh(UNKNOWN_KEY_PAUSE_S)
            found = self._find(name)
        return found

    def _find(self, name: str | None) -> jwt.PyJWK | None:
        if name is None:
            return self._keys[0] if len(self._keys) == 1 else None
        return next((key for key in self._keys if key.key_id == name), None)

    async def _refresh(self, older_than_s: float) -> None:
        async with self._reading:
            if time.monotonic() - self._read_at < older_than_s:
                return
            try:
                text = await asyncio.to_thread(self._fetch)
                self._keys = list(jwt.PyJWKSet.from_json(text).keys)
            except (OSError, ValueError, jwt.PyJWTError) as error:
                if not self._keys:
                    raise JwksUnavailableError(f"the keys of PARLEY_JWT_JWKS cannot be read: {error}") from None
            self._read_at = time.monotonic()

    def _fetch(self) -> str:
        if not self._place.startswith(("https://", "http://")):
            return Path(self._place).read_text(encoding="utf-8")
        with urllib.request.urlopen(self._place, timeout=TIMEOUT_S) as reply:  # noqa: S310 - the scheme is checked
            return str(reply.read().decode())
