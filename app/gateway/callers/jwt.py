"""JSON Web Tokens: one algorithm, determined by the settings and never by the token."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jwt

from app.gateway.callers.jwks import Jwks, JwksSourceError, JwksUnavailableError
from app.gateway.callers.keys import CallerRole, Grant, desks_mistake
from app.gateway.edge.errors import ApiError
from app.settings import Settings
from app.wire.error import ErrorCode

_SHARED = {"HS256", "HS384", "HS512"}
_PUBLIC = {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
_KEY_TYPES = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
_LEEWAY_S = 10
_APPROVER = "approver"
_ROLES = {role.name.lower(): role for role in CallerRole} | {_APPROVER: CallerRole.USER}
ALL_TENANTS = "*"
"""As a token's tenant: its role holds for all. A token that lacks the claim must not have more rights for that."""


class TokenSettingsError(ValueError):
    """The JWT settings contradict each other; one line."""


class TokenCheck:
    def __init__(self, settings: Settings) -> None:
        self._secrets = [one for one in (settings.jwt_secret, settings.jwt_former_secret) if one]
        self._jwks: Jwks | None = None
        self._role_claim = settings.jwt_role_claim
        self._issuer = settings.jwt_issuer or None
        self._audience = settings.jwt_audience or None
        self._algorithm = settings.jwt_algorithm or ("HS256" if settings.jwt_secret else "RS256")
        if settings.jwt_secret and settings.jwt_jwks:
            raise TokenSettingsError("set PARLEY_JWT_SECRET or PARLEY_JWT_JWKS, not both")
        if not settings.jwt_secret:
            _refuse(settings, ("jwt_former_secret",), "PARLEY_JWT_SECRET")
        if not settings.jwt_secret and not settings.jwt_jwks:
            _refuse(settings, ("jwt_algorithm", "jwt_issuer", "jwt_audience"), "PARLEY_JWT_SECRET or PARLEY_JWT_JWKS")
            return
        possible = _SHARED if self._secrets else _PUBLIC
        if self._algorithm not in possible:
            raise TokenSettingsError(f"PARLEY_JWT_ALGORITHM: must be one of {', '.join(sorted(possible))}")
        needed = int(self._algorithm[2:]) // 8 if self._secrets else 0
        for name, secret in zip(("PARLEY_JWT_SECRET", "PARLEY_JWT_FORMER_SECRET"), self._secrets, strict=False):
            if len(secret.encode()) < needed:
                raise TokenSettingsError(f"{name}: must have at least {needed} bytes for {self._algorithm}")
        if settings.jwt_jwks:
            try:
                self._jwks = Jwks(settings.jwt_jwks)
            except JwksSourceError as error:
                raise TokenSettingsError(str(error)) from None

    def __bool__(self) -> bool:
        return bool(self._secrets) or self._jwks is not None

    async def check(self) -> None:
        """Raise `JwksUnavailableError` if no token can be verified now."""
        if self._jwks is not None:
            await self._jwks.check()

    async def grant(self, token: str) -> Grant:
        """The subject of the token; raises `ApiError`."""
        try:
            claims = await self._claims(token)
        except jwt.PyJWTError as error:
            raise ApiError(ErrorCode.UNAUTHORIZED, f"the token is rejected: {error}") from None
        return _grant(claims, claims.get(self._role_claim))

    async def _claims(self, token: str) -> dict[str, Any]:
        if self._jwks is not None:
            return self._verified(token, await self._key(self._jwks, token))
        current, *former = self._secrets
        try:
            return self._verified(token, current)
        except jwt.InvalidSignatureError:
            if not former:
                raise
            return self._verified(token, former[0])

    def _verified(self, token: str, key: Any) -> dict[str, Any]:
        return jwt.decode(
            token,
            key,
            algorithms=[self._algorithm],
            issuer=self._issuer,
            audience=self._audience,
            leeway=_LEEWAY_S,
            options={"require": ["exp", "sub"]},
        )

    async def _key(self, keys: Jwks, token: str) -> Any:
        header = jwt.get_unverified_header(token)
        if header.get("alg") != self._algorithm:
            raise jwt.InvalidAlgorithmError("its algorithm is not the configured one")
        try:
            key = await keys.key(header.get("kid"))
        except JwksUnavailableError as error:
            raise ApiError(ErrorCode.UNAVAILABLE, str(error), retry_after_s=5) from None
        if key is None:
            raise jwt.InvalidKeyError("it is signed with an unknown key")
        if key.key_type != _KEY_TYPES[self._algorithm[:2]]:
            raise jwt.InvalidKeyError("its key does not match the configured algorithm")
        return key.key


def _refuse(settings: Settings, names: Iterable[str], missing: str) -> None:
    """Reject JWT settings without a key: the operator wants tokens, and without a key every caller would be
    accepted.
    """
    for name in names:
        if getattr(settings, name):
            raise TokenSettingsError(
                f"PARLEY_{name.upper()} is set, but there is no key to verify tokens with: set {missing}, too"
            )


def _grant(claims: dict[str, Any], role: Any) -> Grant:
    user, tenant = claims["sub"], claims.get("tenant")
    if not user:
        raise ApiError(ErrorCode.UNAUTHORIZED, "the token is rejected: its sub is empty")
    if tenant is not None and (not isinstance(tenant, str) or not tenant or "/" in tenant):
        raise ApiError(ErrorCode.UNAUTHORIZED, "the token is rejected: its tenant is not a plain name")
    if role is not None and (not isinstance(role, str) or role not in _ROLES):
        raise ApiError(ErrorCode.UNAUTHORIZED, f"the token is rejected: its role is not one of {', '.join(_ROLES)}")
    granted = _ROLES[role] if role is not None else CallerRole.USER
    desks = _desks(claims.get("desks"))
    if role == _APPROVER and not desks:
        raise ApiError(ErrorCode.UNAUTHORIZED, "the token is rejected: the role approver needs the claim desks")
    of_all = tenant == ALL_TENANTS
    if of_all and granted is CallerRole.USER and not desks:
        raise ApiError(ErrorCode.UNAUTHORIZED, f"the token is rejected: the tenant {ALL_TENANTS} needs a role")
    return Grant(user, None if of_all else tenant, float(claims["exp"]) + _LEEWAY_S, granted, of_all, desks)


def _desks(claim: Any) -> frozenset[str]:
    """The claim is a list of names, or one name."""
    if claim is None or claim == []:
        return frozenset()
    desks = claim if isinstance(claim, list) else [claim]
    if mistake := desks_mistake(desks):
        raise ApiError(ErrorCode.UNAUTHORIZED, f"the token is rejected: its claim desks {mistake}")
    return frozenset(desks)
