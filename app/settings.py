"""All settings, in one class; the README's table is generated from it.

Values come from the environment, then `.env`, then `.parley/local.env` of the working directory (which
`parley local up` writes), then the defaults below.
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
import warnings
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from dotenv import dotenv_values
from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from app.kafka.cluster import OAUTH, Cluster
from app.prices import Prices
from models.adapter_folders import adapter_folders

PREFIX = "PARLEY_"
LOCAL_ENV = Path(".parley/local.env")
ENV_FILES = (LOCAL_ENV, Path(".env"))  # later files override earlier ones

SEGMENT_S = 86400
"""A topic starts a new segment after a day at the latest (`segment.ms`)."""


class SettingsError(Exception):
    """A setting is invalid; the message is one line that names it and the remedy."""


class UnknownSettingWarning(UserWarning):
    """A `PARLEY_` variable that is no setting, probably a typo."""


class Settings(BaseSettings):
    """The settings, validated when they are read."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_file=ENV_FILES,
        env_file_encoding="utf-8",
        extra="ignore",
        frozen=True,
    )

    # Addresses and names
    broker: str = Field("kafka://127.0.0.1:9092", description="Kafka, `kafka://host:port`; several brokers with `;`")
    milvus_uri: str = Field("http://127.0.0.1:19530", description="Milvus server")
    milvus_token: str = Field("", description="Milvus token, if the server requires one", repr=False)
    milvus_collection: str = Field("turns", min_length=1, description="collection of the history")
    data_dir: Path = Field(Path(".parley/worker"), description="RocksDB tables; each worker needs a folder of its own")
    topic_prefix: str = Field("", pattern=r"^[A-Za-z0-9._-]*$", description="prefix of every topic's name")
    region: str = Field(
        "", description="region of this deployment: tenants of another `region` in the policy are refused"
    )
    worker_group: str = Field("", description="group of this deployment; tenants of other groups are refused")
    app_id: str = Field("parley", pattern=r"^[A-Za-z0-9._-]+$", description="consumer group and prefix of changelogs")
    partitions: int = Field(8, ge=1, le=4096, description="partitions of every keyed topic")
    replication: int = Field(1, ge=1, le=7, description="replicas of topics that Parley creates")

    # The model
    model: str = Field("demo", min_length=1, description="`demo`, a folder, or a Hugging Face name")
    second_model: str = Field("", description="an additional model, for requests that name it")
    adapters: str = Field(
        "", description="LoRA adapters: `name=folder`, or a folder of adapter folders; several with `,`"
    )
    adapters_gb: float = Field(
        1.0, gt=0, description="memory of loaded adapters; adapters in use may take as much again"
    )
    engine: Literal["torch", "vllm", "paced"] = Field(
        "torch", description="`vllm` for many GPUs; `paced` emits words at a fixed rate, for tests"
    )
    speculation: Literal["off", "lookup", "auto"] = Field(
        "off", description="speculative decoding: `lookup` drafts from the text, `auto` also from the draft model"
    )
    tool_format: Literal[
        "", "hermes", "llama", "mistral", "args", "phi", "tool_call", "granite", "deepseek", "deepseek31", "json"
    ] = Field("", description="how the model writes calls of tools; empty: as its chat template shows")
    draft_model: str = Field("", description="draft model, with the same tokenizer as `PARLEY_MODEL`")
    tensor_parallel: int = Field(1, ge=1, description="tensor parallel GPUs (`vllm`)")
    pipeline_parallel: int = Field(1, ge=1, description="pipeline parallel stages (`vllm`)")
    data_parallel: int = Field(1, ge=1, description="replicas of the model (`vllm`)")
    vllm_backend: Literal["", "mp", "ray"] = Field("", description="`ray` for several machines; empty: chosen by vLLM")
    vllm_args: str = Field("", description="additional `AsyncEngineArgs` of vLLM, as a JSON object")
    paced_tokens_per_s: float = Field(50.0, gt=0, description="tokens/s of each answer of the `paced` engine")
    device: str = Field(
        "auto", pattern=r"^(auto|(cpu|cuda|mps|xpu)(:\d+)?)$", description="`auto`, `cpu`, `cuda`, `cuda:1`"
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto", description="data type of weights and activations; `auto`: on a CPU the faster one, which is measured"
    )
    quantize: Literal["", "int8", "fp8"] = Field(
        "", description="quantize the weights of a plain checkpoint to `int8` or `fp8`"
    )
    trust_remote_code: bool = Field(False, description="allow Python code in a checkpoint")
    threads: int = Field(0, ge=0, description="CPU threads of the engine; 0: all cores but one")
    system_prompt: str = Field("", description="system prompt of every conversation; may be empty")
    max_tokens: int = Field(256, ge=1, description="`max_tokens` of requests without one")
    max_prompt_bytes: int = Field(65536, ge=1, description="longer prompts are rejected")
    context_length: int = Field(0, ge=0, description="tokens of prompt and answer together; 0: the model's own")
    kv_cache_gb: float = Field(
        0, ge=0, description="KV cache of each model, including its draft model, in GB; 0: all free memory"
    )

    # Batching
    batch_max_size: int = Field(32, ge=1, le=4096, description="a batch with this many prompts is flushed at once")
    batch_budget_ms: float = Field(
        5.0, ge=0, description="longest time that a prompt waits for its batch while the engine is busy"
    )
    max_in_flight: int = Field(64, ge=1, description="requests that run at once, per partition")
    partition_held_mb: int = Field(
        64, ge=1, description="memory of a partition's open records, in MB; further records wait in Kafka"
    )
    max_running: int = Field(64, ge=1, description="sequences that the engine decodes at once, per worker")

    # Memory
    history_turns: int = Field(10, ge=0, description="turns of a conversation that a prompt includes")
    conversation_ttl_s: float = Field(1800.0, gt=0, description="a conversation expires this long after its last turn")
    dedup_s: float = Field(
        86400.0, gt=0, description="a repeated request id is a duplicate for this long after the request's end"
    )
    sweep_interval_s: float = Field(30.0, gt=0, description="interval of the deletion of expired conversations")

    # Tools over Kafka
    tool_timeout_s: float = Field(
        60.0, gt=0, le=3600, description="how long an answer waits for the results of its calls (`tool_mode` `kafka`)"
    )
    tool_rounds: int = Field(8, ge=1, le=64, description="how often one answer may call tools (`tool_mode` `kafka`)")

    # Policy
    policy: Path | None = Field(None, description="the policy file (TOML): models, routes, experiments")

    # Kafka
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
    start_wait_s: float = Field(300.0, ge=0, description="how long a starting worker waits for Kafka")
    drain_s: float = Field(10.0, ge=0, description="grace period of running answers at SIGTERM")
    finish_timeout_s: float = Field(60.0, gt=0, description="longest time of a commit while the broker answers")
    wire_format: Literal["json", "protobuf"] = Field("json", description="format of the records that Parley writes")
    standby_replicas: int = Field(0, ge=0, description="standbys of each partition's tables")
    requests_retention_s: int = Field(
        7 * 86400, ge=60, description="retention of `requests`, `controls`, `tool-calls` and `tool-results` at creation"
    )
    tokens_retention_s: int = Field(8 * 86400, ge=60, description="retention of `tokens` at creation")
    turns_retention_s: int = Field(30 * 86400, ge=60, description="retention of `turns` and `dead-letters` at creation")
    audit_retention_s: int = Field(365 * 86400, ge=0, description="retention of `audit` at creation; 0: no audit")

    compaction_lag_s: int = Field(
        86400, ge=60, description="`max.compaction.lag.ms` of changelogs: deleted rows leave the log within this time"
    )

    # History
    embedder: str = Field("minilm", min_length=1, description="`minilm`, a folder, a Hugging Face name, or `none`")
    index_batch: int = Field(128, ge=1, le=10000, description="rows per upsert")
    index_delay_s: float = Field(0.5, gt=0, description="longest time that a turn waits for its upsert")
    index_flush_s: float = Field(
        30.0, gt=0, description="interval of flushes of milvus-lite, and of checks of the collection"
    )

    history_ttl_s: float | None = Field(
        None, ge=0, description="retention of rows in Milvus; 0: for ever; empty: the retention of `turns`"
    )

    # Observability
    log_format: Literal["text", "json"] = Field(
        "text", description="`json`: one object per line (`faust --quiet` omits the banner)"
    )
    traces: Literal["off", "otlp", "console"] = Field("off", description="OpenTelemetry traces; needs the extra `otel`")
    traces_sample: float = Field(0.1, ge=0, le=1, description="fraction of traces that are recorded")
    usage_window_s: int = Field(60, ge=0, le=86400, description="length of a usage window; 0: no usage records")
    usage_grace_s: int = Field(300, ge=0, description="grace period for late turns of a usage window")
    prices: str = Field("", description="`MODEL=PROMPT/ANSWER` per 1,000 tokens, `*` for all others; several with `,`")
    metrics_tenants: int = Field(20, ge=0, description="tenants with their own metric series; the rest are `other`")

    # The gateway
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
    gateway_peer_host: str = Field(
        "", description="address that the port for gateways binds; empty: the host of `PARLEY_GATEWAY_ADVERTISE`"
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
        "", description="`KEY=user`, `KEY=tenant/user` or `KEY=tenant/*`; several with `,`", repr=False
    )
    jwt_secret: str = Field("", description="shared secret of JWTs, at least 32 bytes", repr=False)
    jwt_jwks: str = Field("", description="JWKS with the public keys of JWTs, a file or URL")
    jwt_algorithm: str = Field("", description="accepted JWT algorithm; empty: HS256 with a secret, RS256 with a JWKS")
    jwt_issuer: str = Field("", description="required `iss` of a JWT")
    jwt_audience: str = Field("", description="required `aud` of a JWT")
    jwt_role_claim: str = Field(
        "parley_role", min_length=1, description="claim of a JWT with `user`, `auditor` or `admin`"
    )
    gateway_wait_s: float = Field(30.0, gt=0, description="how long a reader waits for an unknown request id")
    gateway_requests_per_min: int = Field(6000, ge=0, description="requests per minute of one user; 0: no limit")
    gateway_tokens_per_min: int = Field(0, ge=0, description="generated tokens per minute of one user; 0: no limit")
    gateway_tenant_requests_per_min: int = Field(0, ge=0, description="requests per minute of one tenant; 0: no limit")
    gateway_tenant_tokens_per_min: int = Field(
        0, ge=0, description="generated tokens per minute of one tenant; 0: no limit"
    )
    gateway_start_s: float = Field(120.0, ge=0, description="reject requests whose estimated wait is longer; 0: never")
    gateway_streams: int = Field(2000, ge=1, description="open streams of one user")
    gateway_tenant_streams: int = Field(0, ge=0, description="open streams of one tenant; 0: no limit")
    gateway_sockets: int = Field(500, ge=1, description="open WebSockets of one key")
    gateway_erasures_per_min: int = Field(10, ge=0, description="erasures per minute of one user; 0: no limit")
    gateway_stall_s: float = Field(
        30.0, gt=0, description="a reader that accepts no data for this long is disconnected"
    )
    gateway_held_events: int = Field(200_000, ge=1, description="token events kept in memory")
    gateway_held_mb: int = Field(256, ge=1, description="memory of those events, in MB")
    gateway_bodies_mb: int = Field(64, ge=2, description="memory of request bodies in transfer, in MB")
    gateway_scan_records: int = Field(
        200_000, ge=1, description="records of a partition that are searched for an older answer"
    )
    gateway_connections: int = Field(10_000, ge=1, description="open connections in total")
    gateway_address_connections: int = Field(
        2500, ge=1, description="open connections from one address (IPv6: one /64)"
    )
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
    gateway_keep: bool = Field(False, description="answers go on when the client of a completion disconnects")
    gateway_drain_s: float = Field(5.0, ge=0, description="grace period of open requests at SIGTERM")

    @field_validator("broker")
    @classmethod
    def _kafka_scheme(cls, value: str) -> str:
        if not all(part.startswith("kafka://") and len(part) > len("kafka://") for part in value.split(";")):
            raise ValueError("must have the form kafka://host:port")
        return value

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

    @field_validator("prices")
    @classmethod
    def _prices_can_be_read(cls, value: str) -> str:
        Prices.parse(value)
        return value

    @field_validator("adapters")
    @classmethod
    def _adapter_names(cls, value: str) -> str:
        adapter_folders(value)
        return value

    @field_validator("vllm_args")
    @classmethod
    def _json_object(cls, value: str) -> str:
        try:
            valid = isinstance(json.loads(value or "{}"), dict)
        except ValueError:
            valid = False
        if not valid:
            raise ValueError('must be a JSON object, such as {"gpu_memory_utilization": 0.8}')
        return value

    @model_validator(mode="after")
    def _tokens_outlive_requests(self) -> Settings:
        if self.tokens_retention_s < self.requests_retention_s:
            raise ValueError("PARLEY_TOKENS_RETENTION_S must be at least PARLEY_REQUESTS_RETENTION_S")
        return self

    @field_validator(
        "kafka_ca_file",
        "kafka_cert_file",
        "kafka_key_file",
        "history_ttl_s",
        "gateway_tools",
        "gateway_tls_cert",
        "gateway_tls_key",
        "gateway_tls_client_ca",
        "policy",
        mode="before",
    )
    @classmethod
    def _empty_is_unset(cls, value: object) -> object:
        return None if value == "" else value

    @model_validator(mode="after")
    def _kafka_login_is_whole(self) -> Settings:
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

    @model_validator(mode="after")
    def _gateway_tls_is_whole(self) -> Settings:
        for name in ("gateway_tls_cert", "gateway_tls_key", "gateway_tls_client_ca"):
            if (path := getattr(self, name)) is None:
                continue
            if self.gateway_tls_cert is None:
                raise ValueError(f"{PREFIX}{name.upper()} needs PARLEY_GATEWAY_TLS_CERT")
            if not path.is_file():
                raise ValueError(f"{PREFIX}{name.upper()}={path}: there is no such file")
        return self

    @property
    def history_ttl(self) -> float:
        """Retention of rows in Milvus in seconds; 0: for ever."""
        return float(self.turns_retention_s if self.history_ttl_s is None else self.history_ttl_s)

    @property
    def ended_horizon_s(self) -> float:
        """How long ids of ended requests are kept: as long as their records can be read again."""
        return max(self.dedup_s, float(self.requests_retention_s))

    @property
    def erased_horizon_s(self) -> int | None:
        """How long erasure marks are kept: longer than anything that could bring erased text back.

        Kafka deletes whole segments, so a record may outlive its retention by the length of a segment. None means for
        ever, if Milvus keeps its rows for ever.
        """
        if not self.history_ttl:
            return None
        kept = (self.requests_retention_s, self.tokens_retention_s, self.turns_retention_s, int(self.history_ttl))
        return max(*kept, self.compaction_lag_s) + SEGMENT_S + 86400

    @property
    def cluster(self) -> Cluster:
        return Cluster(
            servers=tuple(part.removeprefix("kafka://") for part in self.broker.split(";")),
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
    def trusted_proxies(self) -> frozenset[str]:
        return values_of(self.gateway_trusted_proxies)

    @property
    def group(self) -> str:
        """The consumer group, and the prefix of transactional ids."""
        return f"{self.topic_prefix}{self.app_id}"

    @property
    def origins(self) -> frozenset[str]:
        return values_of(self.gateway_origins)

    @property
    def models(self) -> list[str]:
        """The values of a request's `model` that the settings define."""
        return [name for name in (self.model, self.second_model) if name] + list(adapter_folders(self.adapters))

    def topic(self, name: str) -> str:
        return f"{self.topic_prefix}{name}"


SECRETS = tuple(name for name, field in Settings.model_fields.items() if field.repr is False)
_FILE = "_FILE"


def values_of(value: str) -> frozenset[str]:
    return frozenset(part.strip() for part in value.split(",") if part.strip())


def load_settings() -> Settings:
    """Read the settings. Raises `SettingsError` with one line; warns of unknown `PARLEY_` variables."""
    try:
        settings = Settings(**_secrets_in_files())
    except ValidationError as error:
        raise SettingsError(_one_line(error)) from None
    for name in unknown_names(named()):
        warnings.warn(f"{name} is not a setting of Parley and is ignored", UnknownSettingWarning, stacklevel=2)
    return settings


@lru_cache(maxsize=1)
def settings() -> Settings:
    """The settings of this process."""
    return load_settings()


def _secrets_in_files() -> dict[str, Any]:
    """Secrets that are named by files, as `PARLEY_JWT_SECRET_FILE`; raises `SettingsError`."""
    values = {name.upper(): value for source in reversed(_sources()) for name, value in source.items()}
    found: dict[str, Any] = {}
    for field in SECRETS:
        name = PREFIX + field.upper()
        if not (path := values.get(f"{name}{_FILE}")):
            continue
        if values.get(name):
            raise SettingsError(f"{name} and {name}{_FILE} are both set: set one of them")
        try:
            found[field] = Path(path).read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise SettingsError(f"{name}{_FILE}={path}: {why}") from None
    return found


def unknown_names(names: Iterable[str]) -> list[str]:
    known = {PREFIX + field.upper() for field in Settings.model_fields}
    known |= {f"{PREFIX}{field.upper()}{_FILE}" for field in SECRETS}
    return sorted({name for name in names if name.upper().startswith(PREFIX) and name.upper() not in known})


def named() -> set[str]:
    """All variable names in the environment and the files, Parley's or not."""
    return {name for source in _sources() for name in source}


def _sources() -> list[Mapping[str, str | None]]:
    """The environment, and the files in the order of their precedence."""
    return [os.environ, *(dotenv_values(path) for path in reversed(ENV_FILES) if path.is_file())]


def _one_line(error: ValidationError) -> str:
    def describe(place: tuple[int | str, ...], message: str, given: object) -> str:
        message = message.removeprefix("Value error, ")
        if not place:
            return message
        name = PREFIX + str(place[0]).upper()
        secret = Settings.model_fields[str(place[0])].repr is False
        return f"{name}: {message}" if secret else f"{name}={given!s}: {message}"

    return "; ".join(describe(e["loc"], e["msg"], e["input"]) for e in error.errors())
