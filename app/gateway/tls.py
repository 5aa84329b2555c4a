"""TLS of the public port, and client certificates (mutual TLS)."""

from __future__ import annotations

import ssl
from typing import Any

from app.settings import Settings


class TlsError(Exception):
    """A certificate or key cannot be used; one line."""


def tls_options(settings: Settings) -> dict[str, Any]:
    """Options of uvicorn; empty without a certificate. Raises `TlsError`."""
    certificate, key, clients = settings.gateway_tls_cert, settings.gateway_tls_key, settings.gateway_tls_client_ca
    if certificate is None:
        return {}
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(certificate, key)
    except (ssl.SSLError, OSError) as error:
        raise TlsError(
            f"PARLEY_GATEWAY_TLS_CERT={certificate}: {_reason(error)}; is the key the certificate's?"
        ) from None
    options: dict[str, Any] = {"ssl_certfile": certificate, "ssl_keyfile": key}
    if clients is None:
        return options
    try:
        context.load_verify_locations(clients)
    except (ssl.SSLError, OSError) as error:
        raise TlsError(f"PARLEY_GATEWAY_TLS_CLIENT_CA={clients}: {_reason(error)}") from None
    return {**options, "ssl_ca_certs": str(clients), "ssl_cert_reqs": ssl.CERT_REQUIRED}


def _reason(error: OSError) -> str:
    return getattr(error, "reason", None) or error.strerror or str(error)
