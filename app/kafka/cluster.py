"""Kafka's address and credentials, as every Kafka client needs them."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.kafka.errors import KafkaSetupError
from app.process.key_files import EncryptedKeyError, show_certificate

if TYPE_CHECKING:
    from app.kafka.oauth import ClientCredentials

OAUTH = "OAUTHBEARER"


@dataclass(frozen=True, slots=True)
class Cluster:
    """`servers` are `host:port`. A `ca_file` replaces the system's certificate authorities; certificate and key are for
    mutual TLS. With the mechanism `OAUTHBEARER`, name and password are the client's at the token server `oauth_url`.
    """

    servers: tuple[str, ...]
    tls: bool = False
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    sasl_mechanism: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    oauth_url: str = ""
    oauth_scope: str = ""

    def __str__(self) -> str:
        return ", ".join(self.servers)

    def options(self) -> dict[str, Any]:
        """Keyword arguments for any aiokafka client. Raises `KafkaSetupError` if a TLS file cannot be used."""
        given: dict[str, Any] = {"bootstrap_servers": list(self.servers), "security_protocol": self._protocol()}
        if self.tls:
            given["ssl_context"] = self.ssl_context()
        if (tokens := self.tokens()) is not None:
            given |= {"sasl_mechanism": OAUTH, "sasl_oauth_token_provider": tokens}
        elif self.sasl_mechanism:
            given |= {
                "sasl_mechanism": self.sasl_mechanism,
                "sasl_plain_username": self.username,
                "sasl_plain_password": self.password,
            }
        return given

    def tokens(self) -> ClientCredentials | None:
        """The tokens of one client, with the mechanism `OAUTHBEARER`."""
        if self.sasl_mechanism != OAUTH:
            return None
        from app.kafka.oauth import ClientCredentials, TokenServer  # noqa: PLC0415 - an HTTP client, for few clusters

        server = TokenServer(self.oauth_url, self.username, self.password, self.oauth_scope, self.ca_file)
        return ClientCredentials(server)

    def ssl_context(self) -> ssl.SSLContext:
        """Raises `KafkaSetupError`."""
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
        except OSError as error:
            why = "has no certificates in PEM" if isinstance(error, ssl.SSLError) else error.strerror
            raise KafkaSetupError(f"PARLEY_KAFKA_CA_FILE={self.ca_file}: {why}") from None
        if self.cert_file is not None:
            try:
                show_certificate(context, self.cert_file, self.key_file)
            except EncryptedKeyError as error:
                raise KafkaSetupError(str(error)) from None
            except OSError as error:
                why = f"no certificate with its key, in PEM ({error.strerror or error})"
                named = f"PARLEY_KAFKA_CERT_FILE={self.cert_file} and PARLEY_KAFKA_KEY_FILE={self.key_file or ''}"
                raise KafkaSetupError(f"{named}: {why}") from None
        return context

    def _protocol(self) -> str:
        if self.sasl_mechanism:
            return "SASL_SSL" if self.tls else "SASL_PLAINTEXT"
        return "SSL" if self.tls else "PLAINTEXT"
