"""Kafka's address and credentials, as every Kafka client needs them."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Cluster:
    """`servers` are `host:port`. A `ca_file` replaces the system's certificate authorities; certificate and key are for
    mutual TLS.
    """

    servers: tuple[str, ...]
    tls: bool = False
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    sasl_mechanism: str = ""
    username: str = ""
    password: str = field(default="", repr=False)

    def __str__(self) -> str:
        return ", ".join(self.servers)

    def options(self) -> dict[str, Any]:
        """Keyword arguments for any aiokafka client. Raises `OSError` if a TLS file cannot be used."""
        given: dict[str, Any] = {"bootstrap_servers": list(self.servers), "security_protocol": self._protocol()}
        if self.tls:
            given["ssl_context"] = self.ssl_context()
        if self.sasl_mechanism:
            given |= {
                "sasl_mechanism": self.sasl_mechanism,
                "sasl_plain_username": self.username,
                "sasl_plain_password": self.password,
            }
        return given

    def ssl_context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.ca_file)
        if self.cert_file is not None:
            context.load_cert_chain(self.cert_file, self.key_file)
        return context

    def _protocol(self) -> str:
        if self.sasl_mechanism:
            return "SASL_SSL" if self.tls else "SASL_PLAINTEXT"
        return "SSL" if self.tls else "PLAINTEXT"
