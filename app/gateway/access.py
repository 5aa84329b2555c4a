"""Who may ask: API keys, tokens, or, where neither is configured, everybody on this machine."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

from app.gateway.errors import ApiError
from app.gateway.identity import DevelopmentIdentity, Identity
from app.gateway.keys import ApiKeys, Grant
from app.gateway.tokens import TokenCheck
from app.settings import Settings
from app.wire import ErrorCode
from app.wire.limits import is_user_id

DEVELOPER = "dev"
_BEARER = "bearer."


class OpenHostError(Exception):
    """Without keys the gateway would let strangers in."""


class Caller:
    """Whoever holds a key. A developer and a tenant's own backend (`takes_users`) say for whom they ask."""

    def __init__(self, request: HTTPConnection, grant: Grant | None) -> None:
        self._request = request
        self._grant = grant
        self.takes_users = grant is None or grant.user is None

    def identity(self, named: str | None = None) -> Identity:
        """The user; raises `ApiError` where that is not the caller's."""
        named = self._request.query_params.get("user_id") or named
        identity = _developer(self._request, named) if self._grant is None else _of(self._grant, named)
        if not is_user_id(identity.user_id):
            raise ApiError(ErrorCode.INVALID_REQUEST, "user_id: must have 1-128 characters", param="user_id")
        return identity

    def check_origin(self) -> None:
        """Raise `ApiError` for a page of another site: a browser asks nobody before it opens a WebSocket.

        Where there are keys a page has to have one, and may come from anywhere.
        """
        origin = self._request.headers.get("origin")
        if self._grant is None and origin is not None and urlsplit(origin).netloc != self._request.url.netloc:
            raise ApiError(ErrorCode.UNAUTHORIZED, "without keys only this gateway's own pages are served", status=403)


class Access:
    """Raises `KeysError`, `TokenSettingsError` or `OpenHostError` where the settings cannot stand."""

    def __init__(self, settings: Settings) -> None:
        self._keys = ApiKeys(settings.gateway_api_keys)
        self._tokens = TokenCheck(settings)
        self.development = not self._keys and not self._tokens
        if self.development and not _is_loopback(settings.gateway_host):
            raise OpenHostError(
                f"PARLEY_GATEWAY_HOST={settings.gateway_host} without keys would let everybody in: set "
                "PARLEY_GATEWAY_API_KEYS, PARLEY_JWT_SECRET or PARLEY_JWT_JWKS, or bind 127.0.0.1"
            )

    async def check(self) -> None:
        """Raise `JwksUnavailableError` where callers that are known cannot be told from others now."""
        await self._tokens.check()

    async def caller(self, request: HTTPConnection) -> Caller:
        """Who calls; raises `ApiError`."""
        return Caller(request, None if self.development else await self._grant(request))

    async def identify(self, request: HTTPConnection, named: str | None = None) -> Identity:
        """Who asks; `named` is the user that the request names beside its query, where it does."""
        return (await self.caller(request)).identity(named)

    async def _grant(self, request: HTTPConnection) -> Grant:
        credential = _credential(request)
        if not credential:
            raise ApiError(ErrorCode.UNAUTHORIZED, "send an API key or a token: `Authorization: Bearer ...`")
        grant = self._keys.grant(credential)
        if grant is None and self._tokens and credential.count(".") == 2:
            grant = await self._tokens.grant(credential)
        if grant is None:
            raise ApiError(ErrorCode.UNAUTHORIZED, "this API key is not known")
        return grant


def _credential(request: HTTPConnection) -> str:
    """Empty where there is none."""
    scheme, _, credential = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return credential.strip()
    # The one header that a page can set for its WebSocket.
    for protocol in request.scope.get("subprotocols", ()):
        if protocol.startswith(_BEARER):
            return str(protocol.removeprefix(_BEARER))
    return ""


def _developer(request: HTTPConnection, named: str | None) -> Identity:
    # A name of somebody's domain that leads to this machine would let that site's pages in.
    if not _is_loopback(request.url.hostname or ""):
        raise ApiError(ErrorCode.UNAUTHORIZED, "without keys only 127.0.0.1 and localhost are served", status=403)
    return DevelopmentIdentity(named or DEVELOPER)


def _of(grant: Grant, named: str | None) -> Identity:
    if grant.user is not None:
        if named not in {None, grant.user}:
            raise ApiError(ErrorCode.UNAUTHORIZED, "this key is not that user's", status=403, param="user_id")
        return Identity(grant.user, grant.tenant)
    if not named:
        raise ApiError(ErrorCode.INVALID_REQUEST, "this key is a tenant's: name the user_id", param="user_id")
    return Identity(named, grant.tenant)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
