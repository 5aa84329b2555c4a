"""A certificate that is renewed in its files is shown without a restart.

Kubernetes, cert-manager and ACME clients replace the files. Connections keep what they were opened with; new ones get
the new certificate. Files that do not fit together, as between the renewal of one and of the other, are tried again at
the next look, and the old certificate is shown meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

from app.process.key_files import show_certificate

log = logging.getLogger(__name__)

EVERY_S = 10.0


class RenewedCertificate:
    """`contexts` gives those that show it, none before their server runs."""

    def __init__(self, certificate: Path, key: Path | None, contexts: Callable[[], Sequence[ssl.SSLContext]]) -> None:
        self._certificate = certificate
        self._key = key
        self._contexts = contexts
        self._shown = self._state()
        self._warned = ""

    @contextlib.asynccontextmanager
    async def followed(self) -> AsyncIterator[None]:
        """While this runs, the files are looked at every `EVERY_S` seconds."""
        following = asyncio.create_task(self._follow(), name="certificate")
        try:
            yield
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    def renew(self) -> bool:
        """Show what is in the files, if it has changed and fits together."""
        contexts, state = self._contexts(), self._state()
        if not contexts or state is None or state == self._shown:
            return False
        try:
            # A context that has loaded one of two files would show neither certificate.
            show_certificate(ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), self._certificate, self._key)
            for context in contexts:
                show_certificate(context, self._certificate, self._key)
        except OSError as error:
            if str(error) != self._warned:
                log.warning("%s has changed and cannot be used, the old one is shown: %s", self._certificate, error)
            self._warned = str(error)
            return False
        self._shown, self._warned = state, ""
        log.info("%s has changed: new connections get the new certificate", self._certificate)
        return True

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            self.renew()

    def _state(self) -> tuple[tuple[int, int, int], ...] | None:
        """None while a file is missing."""
        try:
            stats = [file.stat() for file in (self._certificate, self._key) if file is not None]
        except OSError:
            return None
        return tuple((one.st_ino, one.st_mtime_ns, one.st_size) for one in stats)
