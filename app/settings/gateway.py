"""Settings of a gateway. What it holds at most is in app/gateway/edge/bounds.py."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Self

from pydantic import Field, field_validator, model_validator
from pydantic_settings import BaseSettings

from app.settings.names import PREFIX

_HEADER = r"^([A-Za-z0-9!#$%&'*+.^_`|~-]{1,64})?$"


class GatewaySettings(BaseSettings):
    gateway_host: str = Field("127.0.0.1", min_length=1, description="address that the gateway binds")
    gateway_port: int = Field(8080, ge=0, le=65535, description="port of the gateway")
    gateway_advertise: str = Field(
        "",
        pattern=r"^(https?://[^/\s]+:\d{1,5})?$",
        description="name of this gateway among others, `http://host:port`, with the host at which they reach it: "
        "gateways with it share the partitions; empty: this one reads all",
    )
    gateway_peer_secret: str = Field(
        "",
        description="secret between gateways, at least 32 characters; while it is replaced the new and the old one, "
        "with `,`",
        repr=False,
    )
    gateway_peer_port: int = Field(
        0, ge=0, le=65535, description="port for gateways; 0: a free one, of which the others learn"
    )
    gateway_tls_cert: Path | None = Field(
        None, description="certificate (PEM, with its chain) of the gateway's public port; empty: no TLS"
    )
    gateway_tls_key: Path | None = Field(None, description="the certificate's private key, if it is in a separate file")
    gateway_tls_client_ca: Path | None = Field(
        None, description="certificate authority (PEM) of callers: only callers with a certificate of it may connect"
    )
    gateway_api_keys: str = Field(
        "",
        description="`KEY=user`, `KEY=tenant/user` or `KEY=tenant/*`, also with `#approver:DESK`; several with `,`",
        repr=False,
    )
    gateway_user_header: str = Field(
        "",
        pattern=_HEADER,
        description="header that names the user of a request with a tenant's key (`KEY=tenant/*`), as "
        "`X-OpenWebUI-User-Id`; not read with a user's own key; empty: none",
    )
    gateway_conversation_header: str = Field(
        "",
        pattern=_HEADER,
        description="header that names the conversation of such a request, as `X-OpenWebUI-Chat-Id`; empty: none",
    )
    gateway_tenant_user: str = Field(
        "",
        max_length=64,
        description="user of a request with a tenant's key that names none; empty: it is refused",
    )
    jwt_secret: str = Field("", description="shared secret of JWTs, at least 32 bytes", repr=False)
    jwt_former_secret: str = Field(
        "", description="a secret before that one, whose JWTs are still accepted", repr=False
    )
    jwt_jwks: str = Field("", description="JWKS with the public keys of JWTs, a file or URL")
    jwt_algorithm: str = Field("", description="accepted JWT algorithm; empty: HS256 with a secret, RS256 with a JWKS")
    jwt_issuer: str = Field("", description="required `iss` of a JWT")
    jwt_audience: str = Field("", description="required `aud` of a JWT")
    jwt_role_claim: str = Field(
        "parley_role", min_length=1, description="claim of a JWT with `user`, `auditor`, `admin` or `approver`"
    )
    gateway_wait_s: float = Field(30.0, gt=0, description="how long a reader waits for an unknown request id")
    gateway_requests_per_min: int = Field(6000, ge=0, description="requests per minute of one user; 0: no limit")
    gateway_tokens_per_min: int = Field(0, ge=0, description="generated tokens per minute of one user; 0: no limit")
    gateway_start_s: float = Field(120.0, ge=0, description="reject requests whose estimated wait is longer; 0: never")
    gateway_trusted_proxies: str = Field(
        "",
        description="trusted proxies (addresses or networks, with `,`); their `X-Forwarded-For` is believed",
    )
    gateway_metrics_host: str = Field("127.0.0.1", min_length=1, description="address that the metrics port binds")
    gateway_metrics_port: int = Field(
        9464, ge=0, le=65535, description="port of `/metrics`, `/healthz` and `/readyz` if keys are configured"
    )
    gateway_origins: str = Field(
        "", description="origins that browsers may call from (`https://chat.example`), with `,`; empty: none"
    )
    gateway_store: bool = Field(True, description="default of `store`: answers are remembered and indexed")
    gateway_tools: Path | None = Field(
        None, description="JSON file with the `tools` that the chat page offers; programs on Kafka run them"
    )
    gateway_access_log: bool = Field(False, description="write a line of JSON for each request to standard output")
    gateway_asleep_s: float = Field(
        30.0,
        gt=0,
        description="how long a call of OpenAI's API stays open while its answer waits for a tool or an approval",
    )
    gateway_keep: bool = Field(False, description="answers go on when the client of a completion disconnects")

    @field_validator("gateway_tools", "gateway_tls_cert", "gateway_tls_key", "gateway_tls_client_ca", mode="before")
    @classmethod
    def _empty_gateway_file_is_unset(cls, value: object) -> object:
        return None if value == "" else value

    @field_validator("gateway_trusted_proxies")
    @classmethod
    def _networks(cls, value: str) -> str:
        for network in values_of(value):
            ipaddress.ip_network(network, strict=False)
        return value

    @field_validator("gateway_origins")
    @classmethod
    def _origins(cls, value: str) -> str:
        for origin in values_of(value):
            if not re.fullmatch(r"https?://[^/\s*]+", origin):
                raise ValueError(f"{origin} must have the form https://host or http://host:port")
        return value

    @model_validator(mode="after")
    def _gateway_tls_is_whole(self) -> Self:
        for name in ("gateway_tls_cert", "gateway_tls_key", "gateway_tls_client_ca"):
            if (path := getattr(self, name)) is None:
                continue
            if self.gateway_tls_cert is None:
                raise ValueError(f"{PREFIX}{name.upper()} needs PARLEY_GATEWAY_TLS_CERT")
            if not path.is_file():
                raise ValueError(f"{PREFIX}{name.upper()}={path}: there is no such file")
        return self

    @property
    def trusted_proxies(self) -> frozenset[str]:
        return values_of(self.gateway_trusted_proxies)

    @property
    def origins(self) -> frozenset[str]:
        return values_of(self.gateway_origins)


def values_of(value: str) -> frozenset[str]:
    return frozenset(part.strip() for part in value.split(",") if part.strip())
