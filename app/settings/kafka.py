"""Settings of Kafka: addresses, names, login, retention of topics."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator
from pydantic_settings import BaseSettings

from app.kafka.cluster import OAUTH, Cluster
from app.settings.names import PREFIX

SEGMENT_S = 86400
"""A topic starts a new segment after a day at the latest (`segment.ms`)."""
COMPACTION_LAG_S = 86400
"""`max.compaction.lag.ms` of changelogs: deleted rows, and with them erased text, leave the log within a day."""
_SCHEME = "kafka://"
_ADDRESS = re.compile(r"(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:(?P<port>[0-9]{1,5}))?")
_PORT = 9092


class TopicName(StrEnum):
    """Parley's own topics."""

    REQUESTS = "requests"
    TOKENS = "tokens"
    TURNS = "turns"
    CONTROLS = "controls"
    USAGE = "usage"
    AUDIT = "audit"
    ERASURES = "erasures"
    TOOL_CALLS = "tool-calls"
    TOOL_RESULTS = "tool-results"
    DEAD_LETTERS = "dead-letters"
    WAITS = "waits"


class KafkaSettings(BaseSettings):
    broker: str = Field("kafka://127.0.0.1:9092", description="Kafka: `host:port`, several with `,`")
    topic_prefix: str = Field("", pattern=r"^[A-Za-z0-9._-]*$", description="prefix of every topic's name")
    app_id: str = Field("parley", pattern=r"^[A-Za-z0-9._-]+$", description="consumer group and prefix of changelogs")
    partitions: int = Field(8, ge=1, le=4096, description="partitions of every keyed topic")
    replication: int = Field(1, ge=1, le=7, description="replicas of topics that Parley creates")
    kafka_tls: bool = Field(False, description="connect to Kafka with TLS")
    kafka_ca_file: Path | None = Field(None, description="certificate authorities (PEM), instead of the system's")
    kafka_cert_file: Path | None = Field(None, description="client certificate (PEM), for mutual TLS")
    kafka_key_file: Path | None = Field(None, description="the certificate's private key, if it is in a separate file")
    kafka_sasl_mechanism: Literal["", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] = Field(
        "", description="`PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512` or `OAUTHBEARER`"
    )
    kafka_username: str = Field("", description="SASL user name; with `OAUTHBEARER` the client id")
    kafka_password: str = Field("", description="SASL password; with `OAUTHBEARER` the client secret", repr=False)
    kafka_oauth_url: str = Field("", description="token endpoint of `OAUTHBEARER` (client credentials grant)")
    kafka_oauth_scope: str = Field("", description="scope of the tokens, if the token endpoint needs one")
    session_timeout_s: float = Field(
        8.0, ge=1, description="a worker without heartbeats for this long loses its partitions"
    )
    wire_format: Literal["json", "protobuf"] = Field("json", description="format of the records that Parley writes")
    requests_retention_s: int = Field(
        7 * 86400, ge=60, description="retention of `requests`, `controls`, `tool-calls` and `tool-results` at creation"
    )
    tokens_retention_s: int = Field(8 * 86400, ge=60, description="retention of `tokens` at creation")
    turns_retention_s: int = Field(30 * 86400, ge=60, description="retention of `turns` and `dead-letters` at creation")
    audit_retention_s: int = Field(365 * 86400, ge=0, description="retention of `audit` at creation; 0: no audit")

    @field_validator("kafka_ca_file", "kafka_cert_file", "kafka_key_file", mode="before")
    @classmethod
    def _empty_kafka_file_is_unset(cls, value: object) -> object:
        return None if value == "" else value

    @field_validator("broker")
    @classmethod
    def _as_faust_writes_it(cls, value: str) -> str:
        """Other tools take `host:port,host:port`, Faust `kafka://host:port;kafka://host:port`."""
        return ";".join(_SCHEME + _address(part.strip()) for part in re.split("[,;]", value))

    @model_validator(mode="after")
    def _tokens_outlive_requests(self) -> Self:
        if self.tokens_retention_s < self.requests_retention_s:
            raise ValueError("PARLEY_TOKENS_RETENTION_S must be at least PARLEY_REQUESTS_RETENTION_S")
        return self

    @model_validator(mode="after")
    def _kafka_login_is_whole(self) -> Self:
        if self.kafka_sasl_mechanism and not (self.kafka_username and self.kafka_password):
            raise ValueError("PARLEY_KAFKA_SASL_MECHANISM needs PARLEY_KAFKA_USERNAME and PARLEY_KAFKA_PASSWORD")
        if self.kafka_username and not self.kafka_sasl_mechanism:
            raise ValueError("PARLEY_KAFKA_USERNAME needs PARLEY_KAFKA_SASL_MECHANISM")
        if (self.kafka_sasl_mechanism == OAUTH) != bool(self.kafka_oauth_url):
            raise ValueError("PARLEY_KAFKA_SASL_MECHANISM=OAUTHBEARER and PARLEY_KAFKA_OAUTH_URL need each other")
        if self.kafka_oauth_url and not self.kafka_oauth_url.startswith(("https://", "http://127.0.0.1:")):
            raise ValueError("PARLEY_KAFKA_OAUTH_URL must begin with https://; it gets the client's secret")
        for name in ("kafka_ca_file", "kafka_cert_file", "kafka_key_file"):
            if (path := getattr(self, name)) is None:
                continue
            if not self.kafka_tls:
                raise ValueError(f"{PREFIX}{name.upper()} needs PARLEY_KAFKA_TLS=true")
            if not path.is_file():
                raise ValueError(f"{PREFIX}{name.upper()}={path}: there is no such file")
        return self

    @property
    def cluster(self) -> Cluster:
        return Cluster(
            servers=tuple(part.removeprefix(_SCHEME) for part in self.broker.split(";")),
            tls=self.kafka_tls,
            ca_file=self.kafka_ca_file,
            cert_file=self.kafka_cert_file,
            key_file=self.kafka_key_file,
            sasl_mechanism=self.kafka_sasl_mechanism,
            username=self.kafka_username,
            password=self.kafka_password,
            oauth_url=self.kafka_oauth_url,
            oauth_scope=self.kafka_oauth_scope,
        )

    @property
    def group(self) -> str:
        """The consumer group, and the prefix of transactional ids."""
        return f"{self.topic_prefix}{self.app_id}"

    def topic(self, name: str) -> str:
        return f"{self.topic_prefix}{name}"

    def own_topics(self) -> tuple[str, ...]:
        """All topics of this installation but the changelogs."""
        return tuple(map(self.topic, TopicName))


def _address(text: str) -> str:
    found = _ADDRESS.fullmatch(text.removeprefix(_SCHEME))
    if found is None or not 0 < int(found["port"] or _PORT) < 1 << 16:
        raise ValueError("must be host:port, or several with a comma between them")
    return f"{found['host']}:{found['port'] or _PORT}"
