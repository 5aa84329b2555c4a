"""The public keys of whoever signs the tokens, from a file or a URL, read again where a token names a new one.

A file has to be there at the start; a URL may be away for a while, and `/readyz` says so. Where the keys come from is
told to the log alone, never to a caller.
"""

from __future__ import annotations

import asyncio
import logging
import time
import urllib.request
from http.client import HTTPException
from pathlib import Path

import jwt

log = logging.getLogger(__name__)

TIMEOUT_S = 5.0
REFRESH_S = 300.0
UNKNOWN_KEY_PAUSE_S = 30.0
"""A token can name any key: unknown names must not make the gateway ask all the time."""
FAILED_PAUSE_S = 5.0


_FAILURES = (OSError, ValueError, AttributeError, TypeError, HTTPException, jwt.PyJWTError)
"""AttributeError and TypeError: PyJWT expects objects where other JSON may stand."""


class JwksUnavailableError(Exception):
    """The keys cannot be had now; names no place."""


class JwksFileError(Exception):
    """The file is no set of keys; one line for whoever starts the gateway."""


class Jwks:
    """Raises `JwksFileError` for a file that cannot be used."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._keys: list[jwt.PyJWK] = []
        self._read_at = float("-inf")
        self._failed_at = float("-inf")
        self._reading = asyncio.Lock()
        if not self._is_url:
            try:
                self._keys = _keys(self._fetch())
            except _FAILURES as error:
                raise JwksFileError(f"PARLEY_JWT_JWKS={place} holds no keys that can be read: {_why(error)}") from None
            self._read_at = time.monotonic()

    async def key(self, name: str | None) -> jwt.PyJWK | None:
        """The key of that name; a set of one key needs no name."""
        await self._refresh(REFRESH_S)
        found = self._find(name)
        if found is None:
            await self._refresh(UNKNOWN_KEY_PAUSE_S)
            found = self._find(name)
        return found

    async def check(self) -> None:
        """Raises `JwksUnavailableError` where there is no key to check a token with."""
        await self._refresh(REFRESH_S)

    def _find(self, name: str | None) -> jwt.PyJWK | None:
        if name is None:
            return self._keys[0] if len(self._keys) == 1 else None
        return next((key for key in self._keys if key.key_id == name), None)

    async def _refresh(self, older_than_s: float) -> None:
        async with self._reading:
            if time.monotonic() - self._read_at < older_than_s:
                return
            # Whoever waited for a reading that failed waits for no second one.
            if time.monotonic() - self._failed_at >= FAILED_PAUSE_S:
                await self._read()
            if not self._keys:
                raise JwksUnavailableError("the keys that tokens are checked with cannot be had now")

    async def _read(self) -> None:
        try:
            self._keys = _keys(await asyncio.to_thread(self._fetch))
            self._read_at = time.monotonic()
        except _FAILURES as error:
            self._failed_at = time.monotonic()
            kept = ""
            if self._keys:
                self._read_at, kept = self._failed_at, "; those that were read before are used"
            log.warning("the keys of PARLEY_JWT_JWKS=%s cannot be read: %s%s", self._place, _why(error), kept)

    @property
    def _is_url(self) -> bool:
        return self._place.startswith(("https://", "http://"))

    def _fetch(self) -> str:
        if not self._is_url:
            return Path(self._place).read_text(encoding="utf-8")
        with urllib.request.urlopen(self._place, timeout=TIMEOUT_S) as reply:  # noqa: S310 - the scheme is checked
            return str(reply.read().decode())


def _keys(text: str) -> list[jwt.PyJWK]:
    return list(jwt.PyJWKSet.from_json(text).keys)


def _why(error: BaseException) -> str:
    """In one line, without the place again."""
    told = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(told.split()) or type(error).__name__
