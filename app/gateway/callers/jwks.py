"""The public keys that tokens are signed with, from a file or a URL.

A file must exist when the gateway starts. A URL may be unreachable for a while; `/readyz` then reports it:

    read less than REFRESH_S ago    used
    older                           used, while one task reads them again
    older than KEEP_S               not used: a key that was revoked long ago must not be accepted
    a token names an unknown key    read again, at most every UNKNOWN_KEY_PAUSE_S; only such tokens wait for that

A reply is limited in size and time. URLs must be https, or http on this machine. Redirects are not followed. Failures
are logged; callers do not see the URL.
"""

from __future__ import annotations

import asyncio
import logging
import time
from http.client import HTTPException
from pathlib import Path
from urllib.parse import urlsplit

import jwt

from app.gateway.edge.origins import is_loopback
from app.process.fetching import fetch

log = logging.getLogger(__name__)

TIMEOUT_S = 5.0
MAX_BYTES = 256 * 1024
REFRESH_S = 300.0
KEEP_S = 24 * 3600.0
UNKNOWN_KEY_PAUSE_S = 30.0
"""A token can name any key: unknown names must not make the gateway send a request each."""
FAILED_PAUSE_S = 5.0


_FAILURES = (OSError, ValueError, AttributeError, TypeError, HTTPException, jwt.PyJWTError)
"""AttributeError and TypeError: PyJWT expects objects where the JSON may have other values."""


class JwksUnavailableError(Exception):
    """The keys are not available now; the message contains no address."""


class JwksSourceError(Exception):
    """The file is not a JWKS, or the URL is not safe; one line for the operator."""


class Jwks:
    """Raises `JwksSourceError` if a file cannot be used or a URL is not safe."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._keys: list[jwt.PyJWK] = []
        self._read_at = float("-inf")
        self._failed_at = float("-inf")
        self._reading: asyncio.Task[None] | None = None
        if self._is_url:
            _check_url(source)
            return
        try:
            self._keys = _keys(self._fetch())
        except _FAILURES as error:
            raise JwksSourceError(f"PARLEY_JWT_JWKS={source} contains no readable keys: {_why(error)}") from None
        self._read_at = time.monotonic()

    async def key(self, name: str | None) -> jwt.PyJWK | None:
        """The key with that name, None if there is none. If there is only one key, it needs no name.

        Raises `JwksUnavailableError`.
        """
        await self.check()
        key = self._find(name)
        if key is None and self._age_s >= UNKNOWN_KEY_PAUSE_S:
            await self._read_again()
            key = self._find(name)
        return key

    async def check(self) -> None:
        """Raise `JwksUnavailableError` if there are no keys to verify a token with."""
        if self._age_s >= KEEP_S:
            await self._read_again()
        elif self._age_s >= REFRESH_S:
            self._begin_reading()
        if not self._keys or self._age_s >= KEEP_S:
            raise JwksUnavailableError("the keys to verify tokens are not available now")

    @property
    def _age_s(self) -> float:
        return time.monotonic() - self._read_at

    def _find(self, name: str | None) -> jwt.PyJWK | None:
        if name is None:
            return self._keys[0] if len(self._keys) == 1 else None
        return next((key for key in self._keys if key.key_id == name), None)

    async def _read_again(self) -> None:
        if (reading := self._begin_reading()) is not None:
            await asyncio.shield(reading)

    def _begin_reading(self) -> asyncio.Task[None] | None:
        """Read the keys once for all waiters; None if the last read failed a moment ago."""
        if self._reading is None and time.monotonic() - self._failed_at >= FAILED_PAUSE_S:
            self._reading = asyncio.create_task(self._read(), name="keys of tokens")
            self._reading.add_done_callback(self._has_read)
        return self._reading

    def _has_read(self, _done: asyncio.Task[None]) -> None:
        self._reading = None

    async def _read(self) -> None:
        try:
            async with asyncio.timeout(TIMEOUT_S + 1):
                text = await asyncio.to_thread(self._fetch)
            self._keys = _keys(text)
            self._read_at = time.monotonic()
        except _FAILURES as error:
            self._failed_at = time.monotonic()
            kept = "; using the keys that were read before" if self._keys else ""
            log.warning("cannot read the keys of PARLEY_JWT_JWKS: %s%s", _why(error), kept)

    @property
    def _is_url(self) -> bool:
        return "://" in self._source

    def _fetch(self) -> str:
        if not self._is_url:
            return Path(self._source).read_text(encoding="utf-8")
        return fetch(self._source, TIMEOUT_S, MAX_BYTES).decode()


def _check_url(source: str) -> None:
    parts = urlsplit(source)
    if parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or "")):
        return
    raise JwksSourceError("PARLEY_JWT_JWKS must be a file or an https URL; http is allowed for this machine only")


def _keys(text: str) -> list[jwt.PyJWK]:
    return list(jwt.PyJWKSet.from_json(text).keys)


def _why(error: BaseException) -> str:
    """The cause in one line, without the address."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(text.split()) or type(error).__name__
