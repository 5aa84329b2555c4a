"""Tokens for `OAUTHBEARER` (KIP-255): OAuth's client credentials grant (RFC 6749, section 4.4).

A client of Kafka asks for a token when it opens a connection. A token is used again until four fifths of its time have
passed. A broker with `connections.max.reauth.ms` closes connections of expired tokens; clients then open new ones.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from urllib.parse import quote, urlencode

from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import AuthenticationFailedError, KafkaConnectionError

from app.process.fetching import fetch

_TIMEOUT_S = 10.0
_MOST_BYTES = 1 << 20
_USUAL_S = 300.0
"""A token's time if the server does not say it."""
_USED = 0.8


@dataclass(frozen=True, slots=True)
class TokenServer:
    """`ca_file` are certificate authorities beside the system's."""

    url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str = ""
    ca_file: Path | None = None


class ClientCredentials(AbstractTokenProvider):
    """The tokens of one Kafka client. `token` raises `AuthenticationFailedError` if the server refuses the client, and
    `KafkaConnectionError` if there is no answer.
    """

    def __init__(self, server: TokenServer) -> None:
        self._server = server
        self._lock = asyncio.Lock()
        self._token = ""
        self._until = 0.0  # monotonic seconds

    async def token(self) -> str:
        async with self._lock:
            if time.monotonic() >= self._until:
                self._token, valid_s = await asyncio.to_thread(_fetch, self._server)
                self._until = time.monotonic() + _USED * valid_s
            return self._token


def _fetch(server: TokenServer) -> tuple[str, float]:
    """A token, and its time in seconds."""
    fields = {"grant_type": "client_credentials", **({"scope": server.scope} if server.scope else {})}
    login = f"{quote(server.client_id, safe='')}:{quote(server.client_secret, safe='')}"
    request = urllib.request.Request(  # noqa: S310 - the settings admit https, and http to this machine
        server.url,
        urlencode(fields).encode(),
        {"Authorization": f"Basic {base64.b64encode(login.encode()).decode()}", "Accept": "application/json"},
    )
    context = ssl.create_default_context()
    if server.ca_file is not None:
        context.load_verify_locations(server.ca_file)
    try:
        return _read(fetch(request, _TIMEOUT_S, _MOST_BYTES, context))
    except urllib.error.HTTPError as error:
        error.close()
        kind = AuthenticationFailedError if error.code in range(400, 500) else KafkaConnectionError
        raise kind(f"the token server {server.url} answers with status {error.code}") from None
    except (OSError, HTTPException, ValueError, KeyError, TypeError) as error:
        raise KafkaConnectionError(f"the token server {server.url} gives no token: {type(error).__name__}") from None


def _read(body: bytes) -> tuple[str, float]:
    answer = json.loads(body)
    token = answer["access_token"]
    if not isinstance(token, str) or not token:
        raise ValueError("access_token")
    return token, float(answer.get("expires_in", _USUAL_S))
