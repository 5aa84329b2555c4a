"""Small documents from trusted servers: keys, tokens. Limited in size and time; redirects are not followed."""

from __future__ import annotations

import ssl
import time
import urllib.error
import urllib.request
from http.client import HTTPMessage
from typing import IO

_CHUNK = 16 * 1024


def fetch(
    request: urllib.request.Request | str, timeout_s: float, most_bytes: int, context: ssl.SSLContext | None = None
) -> bytes:
    """The body of the reply. Raises `urllib.error.HTTPError` for other statuses than 2xx, also for a redirect, which
    might take a secret elsewhere; `OSError`, `http.client.HTTPException` or `ValueError` if there is no such reply.
    """
    deadline = time.monotonic() + timeout_s
    opener = urllib.request.build_opener(_NoRedirects, urllib.request.HTTPSHandler(context=context))
    with opener.open(request, timeout=timeout_s) as reply:
        raw = bytearray()
        while chunk := reply.read1(_CHUNK):
            raw += chunk
            if len(raw) > most_bytes:
                raise ValueError(f"more than {most_bytes} bytes")
            if time.monotonic() > deadline:
                raise TimeoutError(f"no reply within {timeout_s:g} s")
    return bytes(raw)


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
