"""Certificates and private keys in files."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import NoReturn


class EncryptedKeyError(OSError):
    """A private key needs a password; one line."""


def show_certificate(context: ssl.SSLContext, certificate: str | Path, key: str | Path | None) -> None:
    """What this side of a connection shows; without `key` the key is in the certificate's file.

    Raises `OSError`, of which `ssl.SSLError` and `EncryptedKeyError` are kinds: without a password OpenSSL would ask
    the terminal for it, and a service without one would wait for ever.
    """

    def refuse() -> NoReturn:
        raise EncryptedKeyError(
            f"the private key in {key or certificate} is encrypted, and there is no setting for its password; "
            "write it without one: openssl pkey -in FILE -out NEW_FILE"
        )

    context.load_cert_chain(certificate, key, password=refuse)
