"""Authentication: API keys, JWTs or, if neither is configured, any caller on this machine.

The key of a tenant, or none, does not tell which user and conversation a request is for. A program such as Open WebUI
has one key, and names its user in headers. The settings say in which; they are never read for a user's own key. The
program writes the header, but its user may have written the body, so a body that names another user is refused.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from starlette.requests import HTTPConnection

from app.gateway.callers.identity import DevelopmentIdentity, Identity
from app.gateway.callers.jwt import TokenCheck
from app.gateway.callers.keys import ANY_USER, ApiKeys, CallerRole, Grant
from app.gateway.edge.errors import ApiError, invalid
from app.gateway.edge.origins import is_loopback
from app.settings import Settings
from app.wire.error import ErrorCode
from app.wire.ids import is_conversation_id, is_user_id

DEVELOPER = "dev"
_BEARER = "bearer."


@dataclass(frozen=True, slots=True)
class Naming:
    """Names of headers, empty if there is none. `otherwise`: the user of a tenant's request whose header is missing."""

    user_header: str = ""
    conversation_header: str = ""
    otherwise: str = ""

    @classmethod
    def of(cls, settings: Settings) -> Naming:
        return cls(settings.gateway_user_header, settings.gateway_conversation_header, settings.gateway_tenant_user)

    def user(self, request: HTTPConnection, named: str | None, label: str | None = None) -> str | None:
        """The user: of the header, or else of the request's query, of `named`, or of `label`, which is no contradiction
        to the header. None if nobody is named. Raises `ApiError`.
        """
        given = {request.query_params.get("user_id"), named} - {None, ""}
        if (header := _value(request, self.user_header)) is None:
            if len(given) > 1:
                raise invalid("user_id", "the query and the body name different users")
            return request.query_params.get("user_id") or named or label
        if given - {header}:
            message = f"user_id: the header {self.user_header} names another user"
            raise ApiError(ErrorCode.UNAUTHORIZED, message, status=403, param="user_id")
        return header

    def field(self, request: HTTPConnection, named: str | None) -> str:
        """Where the caller has written the user: as `user` in a body of OpenAI's, if nowhere else."""
        if _value(request, self.user_header) is not None:
            return self.user_header
        return "user_id" if named or request.query_params.get("user_id") else "user"

    def conversation(self, request: HTTPConnection) -> str | None:
        """The conversation that the header names, None if it names none. Raises `ApiError`."""
        value = _value(request, self.conversation_header)
        if value is not None and not is_conversation_id(value):
            raise invalid(self.conversation_header, "names no conversation: it is too long")
        return value

    def unnamed(self) -> ApiError:
        """The refusal of a tenant's request that names nobody."""
        where = f"in the header {self.user_header} or as user_id" if self.user_header else "as user_id"
        message = f"this key belongs to a tenant: name the user {where}"
        return ApiError(ErrorCode.INVALID_REQUEST, message, param="user_id")


def _value(request: HTTPConnection, header: str) -> str | None:
    """The value of the header in UTF-8, None if it is missing or empty. Raises `ApiError` if there are several."""
    values = set(request.headers.getlist(header)) if header else set()
    if len(values) > 1:
        raise invalid(header, "is there more than once")
    raw = next(iter(values), "").encode("latin-1")
    try:
        return raw.decode() or None
    except UnicodeDecodeError:
        raise invalid(header, "is not UTF-8") from None


class OpenHostError(Exception):
    """Without keys, the gateway would accept callers from other machines."""


class Caller:
    """An authenticated caller. A developer and a tenant's backend act for users that they name."""

    def __init__(self, request: HTTPConnection, grant: Grant | None, naming: Naming) -> None:
        self._request = request
        self._grant = grant
        self._naming = naming
        self._names_users = grant is None or grant.user is None

    @property
    def valid_s(self) -> float | None:
        """Seconds until the caller's token expires; None if it does not."""
        if self._grant is None or self._grant.expires_at is None:
            return None
        return max(0.0, self._grant.expires_at - time.time())

    @property
    def holder(self) -> str:
        """The key's subject: a user's id, a tenant with `/*`, or any user in development mode."""
        if self._grant is None:
            return DEVELOPER
        if self._grant.user is None:
            return f"{self._grant.tenant}/{ANY_USER}"
        return Identity(self._grant.user, self._grant.tenant).user_id

    @property
    def is_development(self) -> bool:
        return self._grant is None

    @property
    def user(self) -> str | None:
        """The key's own user; None for a tenant's backend, and in development mode."""
        return None if self._grant is None else self._grant.user

    def require(self, role: CallerRole, tenant: str) -> None:
        """Raise `ApiError` unless the caller has at least this role for the tenant; empty: users without a tenant."""
        if self._grant is None:
            return
        if self._grant.role < role or not (self._grant.of_all or (self._grant.tenant or "") == tenant):
            message = f"this needs a token with the role {role.name.lower()} for that tenant"
            raise ApiError(ErrorCode.UNAUTHORIZED, message, status=403)

    @property
    def desks(self) -> frozenset[str] | None:
        """The desks of an approver; None in development mode: all."""
        return None if self._grant is None else self._grant.desks

    def decides_in(self, tenant: str, desk: str | None = None) -> bool:
        """Whether the caller decides about calls of the tenant, those that are up to the `desk` if one is named."""
        if self._grant is None:
            return True
        is_of_desk = bool(self._grant.desks) if desk is None else desk in self._grant.desks
        return is_of_desk and (self._grant.of_all or (self._grant.tenant or "") == tenant)

    def decider(self) -> Identity:
        """Who decides for a desk: the key's user, whom the request names, or the tenant. Raises `ApiError`."""
        if not self._names_users or self._grant is None:
            return self.identity()
        named = self._naming.user(self._request, None) or self._naming.otherwise
        return self.identity(named or self._grant.tenant)

    def acts_for(self, user_id: str) -> bool:
        """Whether the caller may act for this user, named as in Kafka, and names no other one. Raises `ApiError`."""
        if self._grant is not None and self._grant.user is not None:
            return Identity(self._grant.user, self._grant.tenant).user_id == user_id
        prefix = "" if self._grant is None else f"{self._grant.tenant}/"
        named = self._naming.user(self._request, None)
        return user_id.startswith(prefix) and named in {None, user_id.removeprefix(prefix)}

    @property
    def names_users(self) -> bool:
        """A developer's key, and that of a tenant."""
        return self._names_users

    @property
    def tenant(self) -> str | None:
        return None if self._grant is None else self._grant.tenant

    def identity_of(self, user_id: str | None, user: str | None) -> Identity:
        """The user of a body of OpenAI's API. With a user's own key, its `user` is only a label.

        Raises `ApiError`.
        """
        return self.identity(user_id, user if self._names_users else None)

    def identity(self, named: str | None = None, label: str | None = None) -> Identity:
        """The user of the request; `label` counts if nothing else names one. Raises `ApiError` if the caller may not
        act for that user.
        """
        identity = self._identity(named, label)
        if not is_user_id(identity.user_id):
            field = self._naming.field(self._request, named) if self._names_users else "sub"
            raise invalid(field, "must have 1-128 characters")
        return identity

    def _identity(self, named: str | None, label: str | None) -> Identity:
        if self._grant is not None and self._grant.user is not None:
            return _own(self._grant, {self._request.query_params.get("user_id") or None, named})
        user = self._naming.user(self._request, named, label)
        if self._grant is None:
            return DevelopmentIdentity(user or DEVELOPER)
        user = user or self._naming.otherwise
        if not user:
            raise self._naming.unnamed()
        return Identity(user, self._grant.tenant)

    @property
    def conversation(self) -> str | None:
        """The conversation that a header of the request names; None with a user's own key. Raises `ApiError`."""
        return self._naming.conversation(self._request) if self._names_users else None


class Access:
    """Raises `KeysError`, `TokenSettingsError` or `OpenHostError` if the settings are invalid."""

    def __init__(self, settings: Settings) -> None:
        self._keys = ApiKeys(settings.gateway_api_keys)
        self._naming = Naming.of(settings)
        self._tokens = TokenCheck(settings)
        self.development = not self._keys and not self._tokens
        if self.development and not is_loopback(settings.gateway_host):
            raise OpenHostError(
                f"PARLEY_GATEWAY_HOST={settings.gateway_host} without keys would accept any caller: set "
                "PARLEY_GATEWAY_API_KEYS, PARLEY_JWT_SECRET or PARLEY_JWT_JWKS, or bind 127.0.0.1"
            )

    async def check(self) -> None:
        """Raise `JwksUnavailableError` if tokens cannot be verified at the moment."""
        await self._tokens.check()

    async def caller(self, request: HTTPConnection) -> Caller:
        """The authenticated caller, also in `request.state.caller`; raises `ApiError`."""
        caller = Caller(request, None if self.development else await self._grant(request), self._naming)
        request.state.caller = caller
        return caller

    async def identify(self, request: HTTPConnection, named: str | None = None) -> Identity:
        """The caller's identity. `named` is the user that the request names other than in its query."""
        return (await self.caller(request)).identity(named)

    async def _grant(self, request: HTTPConnection) -> Grant:
        credential = _credential(request)
        if not credential:
            raise ApiError(ErrorCode.UNAUTHORIZED, "send an API key or a token: `Authorization: Bearer ...`")
        grant = self._keys.grant(credential)
        if grant is None and self._tokens and credential.count(".") == 2:
            grant = await self._tokens.grant(credential)
        if grant is None:
            raise ApiError(ErrorCode.UNAUTHORIZED, "this API key is unknown")
        return grant


def _credential(request: HTTPConnection) -> str:
    """The credential, empty if there is none. Raises `ApiError` for two: a proxy on the way may read the other one."""
    given = request.headers.getlist("authorization")
    if len(set(given)) > 1:
        raise ApiError(ErrorCode.UNAUTHORIZED, "send one header `Authorization`, not several that differ")
    scheme, _, credential = (given[0] if given else "").partition(" ")
    if scheme.lower() == "bearer":
        return credential.strip()
    # The only header that a page can set for a WebSocket.
    for protocol in request.scope.get("subprotocols", ()):
        if protocol.startswith(_BEARER):
            return str(protocol.removeprefix(_BEARER))
    return ""


def _own(grant: Grant, named: set[str | None]) -> Identity:
    if grant.user is None or named - {None, grant.user}:
        raise ApiError(ErrorCode.UNAUTHORIZED, "this key belongs to another user", status=403, param="user_id")
    return Identity(grant.user, grant.tenant)
