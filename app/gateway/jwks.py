"""The public keys that tokens are signed with, from a file or a URL.

A file must exist when the gateway starts. A URL may be unreachable for a while; `/readyz` then reports it:

    read less than REFRESH_S ago    used as they are
    older                           used, while one task reads them again
    older than KEEP_S               not used: what was revoked long ago must not open anything
    a token names an unknown key    read again, at most every UNKNOWN_KEY_PAUSE_S; only such tokens wait for that

A reply is limited in size and time. URLs must be https, or http on this machine. Redirects are not followed. Failures
are logged; callers do not see the URL.
"""

from __future__ import annotations

import asyncio
import logging
import time
import urllib.error
import urllib.request
from http.client import HTTPException, HTTPMessage
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

import jwt

from app.gateway.loopback import is_loopback

log = logging.getLogger(__name__)

TIMEOUT_S = 5.0
MAX_BYTES = 256 * 1024
REFRESH_S = 300.0
KEEP_S = 24 * 3600.0
UNKNOWN_KEY_PAUSE_S = 30.0
"""A token can name any key: unknown names must not make the gateway ask all the time."""
FAILED_PAUSE_S = 5.0
_CHUNK = 16 * 1024


_FAILURES = (OSError, ValueError, AttributeError, TypeError, HTTPException, jwt.PyJWTError)
"""AttributeError and TypeError: PyJWT expects objects where other JSON may stand."""


class JwksUnavailableError(Exception):
    """The keys cannot be had now; names no place."""


class JwksPlaceError(Exception):
    """The file is no set of keys, or the URL is not safe; one line for the operator."""


class Jwks:
    """Raises `JwksPlaceError` for a file that cannot be used and for a URL that is not safe."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._keys: list[jwt.PyJWK] = []
        self._read_at = float("-inf")
        self._failed_at = float("-inf")
        self._reading: asyncio.Task[None] | None = None
        if self._is_url:
            _check_url(place)
            return
        try:
            self._keys = _keys(self._fetch())
        except _FAILURES as error:
            raise JwksPlaceError(f"PARLEY_JWT_JWKS={place} holds no keys that can be read: {_why(error)}") from None
        self._read_at = time.monotonic()

    async def key(self, name: str | None) -> jwt.PyJWK | None:
        """The key of that name, None where there is none; a set of one key needs no name.

        Raises `JwksUnavailableError`.
        """
        await self.check()
        found = self._find(name)
        if found is None and self._age_s >= UNKNOWN_KEY_PAUSE_S:
            await self._read_again()
            found = self._find(name)
        return found

    async def check(self) -> None:
        """Raise `JwksUnavailableError` where there is no key to check a token with."""
        if self._age_s >= KEEP_S:
            await self._read_again()
        elif self._age_s >= REFRESH_S:
            self._begin_reading()
        if not self._keys or self._age_s >= KEEP_S:
            raise JwksUnavailableError("the keys that tokens are checked with cannot be had now")

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
        """The one reading for all that wait; None where the last one failed a moment ago."""
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
            kept = "; those that were read before are used" if self._keys else ""
            log.warning("the keys of PARLEY_JWT_JWKS cannot be read: %s%s", _why(error), kept)

    @property
    def _is_url(self) -> bool:
        return "://" in self._place

    def _fetch(self) -> str:
        if not self._is_url:
            return Path(self._place).read_text(encoding="utf-8")
        deadline = time.monotonic() + TIMEOUT_S
        with _OPENER.open(self._place, timeout=TIMEOUT_S) as reply:
            raw = bytearray()
            while chunk := reply.read1(_CHUNK):
                raw += chunk
                if len(raw) > MAX_BYTES:
                    raise ValueError(f"there are more than {MAX_BYTES} bytes")
                if time.monotonic() > deadline:
                    raise TimeoutError(f"it did not come within {TIMEOUT_S:g} s")
        return raw.decode()


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,  # noqa: ARG002 - as the library calls it
        headers: HTTPMessage,
        newurl: str,  # noqa: ARG002
    ) -> None:
        raise urllib.error.HTTPError(req.full_url, code, "a redirect, which is not followed", headers, fp)


_OPENER = urllib.request.build_opener(_NoRedirects)


def _check_url(place: str) -> None:
    parts = urlsplit(place)
    if parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or "")):
        return
    raise JwksPlaceError("PARLEY_JWT_JWKS must be a file or an https URL; http is taken from this machine alone")


def _keys(text: str) -> list[jwt.PyJWK]:
    return list(jwt.PyJWKSet.from_json(text).keys)


def _why(error: BaseException) -> str:
    """In one line, without the place again."""
    told = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(told.split()) or type(error).__name__
