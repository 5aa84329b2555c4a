"""How gateways know each other: a shared secret, and with `https` their certificates."""

from __future__ import annotations

import hashlib
import hmac
import ssl

from starlette.requests import HTTPConnection

from app.settings import Settings

_PURPOSE = b"parley gateways"


class SharingError(ValueError):
    """The settings for sharing are not complete; one line with the remedy."""


def peer_secret(settings: Settings) -> str:
    """`PARLEY_GATEWAY_PEER_SECRET`, or what all gateways with the same keys or JWT secret derive from these.

    Raises `SharingError` if callers are checked by a JWKS alone: anybody may know its keys.
    """
    if settings.gateway_peer_secret:
        return settings.gateway_peer_secret
    if not settings.gateway_advertise:
        return ""
    own = (settings.gateway_api_keys or settings.jwt_secret).encode()
    if not own and settings.jwt_jwks:
        raise SharingError("PARLEY_GATEWAY_ADVERTISE with PARLEY_JWT_JWKS needs PARLEY_GATEWAY_PEER_SECRET")
    return hmac.new(own, _PURPOSE, hashlib.sha256).hexdigest()


def is_peer(request: HTTPConnection, secret: str) -> bool:
    given = request.headers.get("authorization", "")
    return bool(secret) and hmac.compare_digest(given.encode(), f"Bearer {secret}".encode())


def peer_tls(settings: Settings) -> ssl.SSLContext | None:
    """For `https` addresses: the gateway's own certificate is shown, and that of the other one is checked, against
    `PARLEY_GATEWAY_TLS_CLIENT_CA` if it is set.
    """
    if not settings.gateway_advertise.startswith("https://"):
        return None
    context = ssl.create_default_context(cafile=settings.gateway_tls_client_ca)
    if settings.gateway_tls_cert is not None:
        context.load_cert_chain(settings.gateway_tls_cert, settings.gateway_tls_key)
    return context
