"""Every setting of Parley, in one class; the README's table is made from it.

Values come from the environment, then `.env`, then `.parley/local.env` of the working directory (which
`parley local up` writes), then the defaults below.
"""

from __future__ import annotations

import ipaddress
import json
import os
import warnings
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Literal

from dotenv import dotenv_values
from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from app.cluster import Cluster
from app.prices import Prices
from models.adapter_folders import adapter_folders

PREFIX = "PARLEY_"
LOCAL_ENV = Path(".parley/local.env")
ENV_FILES = (LOCAL_ENV, Path(".env"))  # the later one wins

SEGMENT_S = 86400
"""A segment of a topic is written to for a day at most (`segment.ms`)."""


class SettingsError(Exception):
    """A setting is wrong; the message is one line that says which and what to change."""


class UnknownSettingWarning(UserWarning):
    """A `PARLEY_` name that no setting has: most likely misspelt."""


class Settings(BaseSettings):
    """The settings, checked when they are read."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_file=ENV_FILES,
        env_file_encoding="utf-8",
        extra="ignore",
        frozen=True,
    )

    # Where things are
    broker: str = Field("kafka://127.0.0.1:9092", description="Kafka, `kafka://host:port`; several with `;`")
    milvus_uri: str = Field("http://127.0.0.1:19530", description="Milvus server")
    milvus_token: str = Field("", description="Milvus token, where the server asks for one", repr=False)
    milvus_collection: str = Field("turns", min_length=1, description="the collection that holds the history")
    data_dir: Path = Field(Path(".parley/worker"), description="RocksDB tables of this worker; one worker, one folder")
    topic_prefix: str = Field("", pattern=r"^[A-Za-z0-9._-]*$", description="put before every topic's name")
    app_id: str = Field("parley", pattern=r"^[A-Za-z0-9._-]+$", description="consumer group and prefix of changelogs")
    partitions: int = Field(8, ge=1, le=4096, description="partitions of every keyed topic")
    replication: int = Field(1, ge=1, le=7, description="replicas of topics that Parley creates")

    # The model
    model: str = Field("demo", min_length=1, description="`demo`, a folder, or a Hugging Face name")
    second_model: str = Field("", description="a smaller one beside it, for requests that name it")
    adapters: str = Field("", description="LoRA: `name=folder`, or a folder of such folders; with `,`")
    adapters_gb: float = Field(1.0, gt=0, description="memory of loaded adapters; those in use have as much again")
    engine: Literal["torch", "vllm", "paced"] = Field(
        "torch", description="`vllm` for many GPUs; `paced` counts words at a set pace (tests)"
    )
    speculation: Literal["off", "lookup", "auto"] = Field(
        "off", description="guess tokens where that pays: `lookup` from the text, `auto` by the draft model too"
    )
    draft_model: str = Field("", description="a small model of the same tokenizer that guesses for `PARLEY_MODEL`")
    tensor_parallel: int = Field(1, ge=1, description="GPUs that share each layer (`vllm`)")
    pipeline_parallel: int = Field(1, ge=1, description="groups of GPUs that share the layers (`vllm`)")
    data_parallel: int = Field(1, ge=1, description="copies of the model (`vllm`)")
    vllm_backend: Literal["", "mp", "ray"] = Field("", description="`ray` for several machines; empty: vLLM chooses")
    vllm_args: str = Field("", description="more of vLLM's `AsyncEngineArgs`, as a JSON object")
    paced_tokens_per_s: float = Field(50.0, gt=0, description="pace of one answer of the `paced` engine")
    device: str = Field(
        "auto", pattern=r"^(auto|(cpu|cuda|mps|xpu)(:\d+)?)$", description="`auto`, `cpu`, `cuda`, `cuda:1`"
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field("auto", description="of weights and activations")
    quantize: Literal["", "int8", "fp8"] = Field(
        "", description="`int8` or `fp8`: what weights of a plain checkpoint are rounded to"
    )
    trust_remote_code: bool = Field(False, description="run Python code that a checkpoint brings with it")
    threads: int = Field(0, ge=0, description="CPU threads of the engine; 0 leaves one core to the event loop")
    system_prompt: str = Field("", description="put before every conversation; may be empty")
    max_tokens: int = Field(256, ge=1, description="of an answer whose request names none")
    max_prompt_bytes: int = Field(65536, ge=1, description="a longer prompt is refused")
    context_length: int = Field(0, ge=0, description="tokens of prompt and answer; 0: what the model has")
    kv_cache_gb: float = Field(
        0, ge=0, description="memory of a model's KV cache, with that of who guesses for it; 0: what fits"
    )

    # Batching
    batch_max_size: int = Field(32, ge=1, le=4096, description="prompts that are flushed to the engine at the latest")
    batch_budget_ms: float = Field(5.0, ge=0, description="longest wait of a prompt for its batch, at a full engine")
    max_in_flight: int = Field(64, ge=1, description="answers being made at once, per partition")
    partition_held_mb: int = Field(64, ge=1, description="memory of a partition's records; the rest waits in Kafka")
    max_running: int = Field(64, ge=1, description="answers that the engine decodes at once, per worker")

    # Memory
    history_turns: int = Field(10, ge=0, description="turns of a conversation that are remembered")
    conversation_ttl_s: float = Field(1800.0, gt=0, description="a conversation is forgotten after its last turn")
    dedup_s: float = Field(86400.0, gt=0, description="a request id is known so long after its end")
    sweep_interval_s: float = Field(30.0, gt=0, description="expired conversations are deleted so often")

    # Kafka
    kafka_tls: bool = Field(False, description="connect to Kafka with TLS")
    kafka_ca_file: Path | None = Field(None, description="authorities (PEM) that are trusted instead of the system's")
    kafka_cert_file: Path | None = Field(None, description="certificate (PEM) that is shown to Kafka, for mutual TLS")
    kafka_key_file: Path | None = Field(None, description="its private key, where the certificate's file has none")
    kafka_sasl_mechanism: Literal["", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = Field(
        "", description="how one logs in to Kafka: `PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512`"
    )
    kafka_username: str = Field("", description="with this name")
    kafka_password: str = Field("", description="and this password", repr=False)
    session_timeout_s: float = Field(8.0, ge=1, description="a worker silent for so long loses its partitions")
    start_wait_s: float = Field(300.0, ge=0, description="a worker waits so long for Kafka when it starts")
    drain_s: float = Field(10.0, ge=0, description="answers may finish for so long at SIGTERM and rebalance")
    finish_timeout_s: float = Field(60.0, gt=0, description="longest finish while the broker answers")
    wire_format: Literal["json", "protobuf"] = Field("json", description="of the records that Parley writes")
    standby_replicas: int = Field(0, ge=0, description="workers that keep a warm copy of each partition's tables")
    requests_retention_s: int = Field(7 * 86400, ge=60, description="of `requests` and `controls` when created")
    tokens_retention_s: int = Field(8 * 86400, ge=60, description="of `tokens` when created")
    turns_retention_s: int = Field(30 * 86400, ge=60, description="of `turns` and `dead-letters` when created")

    compaction_lag_s: int = Field(
        86400, ge=60, description="deleted rows leave the changelogs within this time (`max.compaction.lag.ms`)"
    )

    # History
    embedder: str = Field("minilm", min_length=1, description="`minilm`, a folder, a Hugging Face name, or `none`")
    index_batch: int = Field(128, ge=1, le=10000, description="rows of one upsert")
    index_delay_s: float = Field(0.5, gt=0, description="longest wait of a turn for its upsert")
    index_flush_s: float = Field(30.0, gt=0, description="Milvus is asked to flush so often")

    history_ttl_s: float | None = Field(
        None, ge=0, description="rows of Milvus live so long; 0: for ever; empty: as long as `turns` keeps its records"
    )

    # What an operator sees
    log_format: Literal["text", "json"] = Field(
        "text", description="`json`: one object a line; `faust --quiet` has no banner"
    )
    traces: Literal["off", "otlp", "console"] = Field("off", description="OpenTelemetry's traces, by the extra `otel`")
    traces_sample: float = Field(0.1, ge=0, le=1, description="share of the traces that begin here and are kept")
    usage_window_s: int = Field(60, ge=0, le=86400, description="length of the windows of `usage`; 0: none are kept")
    usage_grace_s: int = Field(300, ge=0, description="a window that is over counts late turns for so long")
    prices: str = Field("", description="`MODEL=PROMPT/ANSWER` of 1,000 tokens each, `*` for all others; with `,`")
    metrics_tenants: int = Field(20, ge=0, description="tenants with series of their own; the others are `other`")

    # The edge
    gateway_host: str = Field("127.0.0.1", min_length=1, description="address that the gateway binds")
    gateway_port: int = Field(8080, ge=0, le=65535, description="port of the gateway")
    gateway_api_keys: str = Field("", description="`KEY=user`, `KEY=tenant/user`, `KEY=tenant/*`; with `,`", repr=False)
    jwt_secret: str = Field("", description="shared secret of JWTs, at least 32 bytes", repr=False)
    jwt_jwks: str = Field("", description="file or URL of the public keys of JWTs")
    jwt_algorithm: str = Field("", description="the one accepted; empty: HS256 for a secret, RS256 for a JWKS")
    jwt_issuer: str = Field("", description="the `iss` that a JWT must have")
    jwt_audience: str = Field("", description="the `aud` that a JWT must have")
    gateway_wait_s: float = Field(30.0, gt=0, description="an unknown request id is waited for so long")
    gateway_requests_per_min: int = Field(6000, ge=0, description="of one user; 0: no limit")
    gateway_tokens_per_min: int = Field(0, ge=0, description="answered to one user; 0: no limit")
    gateway_tenant_requests_per_min: int = Field(0, ge=0, description="of one tenant; 0: no limit")
    gateway_tenant_tokens_per_min: int = Field(0, ge=0, description="answered to one tenant; 0: no limit")
    gateway_start_s: float = Field(120.0, ge=0, description="an answer that cannot begin by then is refused; 0: never")
    gateway_streams: int = Field(2000, ge=1, description="of one user, open at once")
    gateway_tenant_streams: int = Field(0, ge=0, description="of one tenant, open at once; 0: no limit")
    gateway_sockets: int = Field(500, ge=1, description="WebSockets of one key, open at once")
    gateway_erasures_per_min: int = Field(10, ge=0, description="of one user; 0: no limit")
    gateway_stall_s: float = Field(30.0, gt=0, description="a reader that takes nothing for so long is dropped")
    gateway_held_events: int = Field(200_000, ge=1, description="token events of answers that are kept in memory")
    gateway_held_mb: int = Field(256, ge=1, description="memory of those events")
    gateway_bodies_mb: int = Field(64, ge=2, description="memory of request bodies while they are sent")
    gateway_scan_records: int = Field(200_000, ge=1, description="records of a partition searched for older answers")
    gateway_connections: int = Field(10_000, ge=1, description="connections that are open at once, in all")
    gateway_address_connections: int = Field(2500, ge=1, description="connections from one address (IPv6: one /64)")
    gateway_trusted_proxies: str = Field(
        "", description="addresses or networks, with `,`, whose `X-Forwarded-For` names the caller's address"
    )
    gateway_metrics_host: str = Field("127.0.0.1", min_length=1, description="address that the port below binds")
    gateway_metrics_port: int = Field(
        9464, ge=0, le=65535, description="port of `/metrics`, `/healthz` and `/readyz` where keys are configured"
    )
    gateway_drain_s: float = Field(5.0, ge=0, description="requests may finish for so long at SIGTERM")

    @field_validator("broker")
    @classmethod
    def _kafka_scheme(cls, value: str) -> str:
        if not all(part.startswith("kafka://") and len(part) > len("kafka://") for part in value.split(";")):
            raise ValueError("must look like kafka://host:port")
        return value

    @field_validator("gateway_trusted_proxies")
    @classmethod
    def _networks(cls, value: str) -> str:
        for network in networks_of(value):
            ipaddress.ip_network(network, strict=False)
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
            raise ValueError('must be a JSON object, as {"gpu_memory_utilization": 0.8}')
        return value

    @model_validator(mode="after")
    def _tokens_outlive_requests(self) -> Settings:
        if self.tokens_retention_s < self.requests_retention_s:
            raise ValueError("PARLEY_TOKENS_RETENTION_S must be at least PARLEY_REQUESTS_RETENTION_S")
        return self

    @field_validator("kafka_ca_file", "kafka_cert_file", "kafka_key_file", "history_ttl_s", mode="before")
    @classmethod
    def _empty_is_unset(cls, value: object) -> object:
        return None if value == "" else value

    @model_validator(mode="after")
    def _kafka_login_is_whole(self) -> Settings:
        if self.kafka_sasl_mechanism and not (self.kafka_username and self.kafka_password):
            raise ValueError("PARLEY_KAFKA_SASL_MECHANISM needs PARLEY_KAFKA_USERNAME and PARLEY_KAFKA_PASSWORD")
        if self.kafka_username and not self.kafka_sasl_mechanism:
            raise ValueError("PARLEY_KAFKA_USERNAME needs PARLEY_KAFKA_SASL_MECHANISM")
        for name in ("kafka_ca_file", "kafka_cert_file", "kafka_key_file"):
            if (path := getattr(self, name)) is None:
                continue
            if not self.kafka_tls:
                raise ValueError(f"{PREFIX}{name.upper()} needs PARLEY_KAFKA_TLS=true")
            if not path.is_file():
                raise ValueError(f"{PREFIX}{name.upper()}={path}: there is no such file")
        return self

    @property
    def history_ttl(self) -> float:
        """Seconds that rows of Milvus live; 0: for ever."""
        return float(self.turns_retention_s if self.history_ttl_s is None else self.history_ttl_s)

    @property
    def ended_horizon_s(self) -> float:
        """For how long the ids of ended requests are kept: as long as their records can be read again."""
        return max(self.dedup_s, float(self.requests_retention_s))

    @property
    def erased_horizon_s(self) -> int | None:
        """For how long the marks of erasures are kept: longer than anything that could bring erased text back.

        Kafka deletes whole segments, so a record may outlive its retention by the time that a segment is written to.
        None is for ever, which is as long as Milvus keeps its rows.
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
        )

    @property
    def trusted_proxies(self) -> frozenset[str]:
        return networks_of(self.gateway_trusted_proxies)

    @property
    def group(self) -> str:
        """The consumer group, and what transactional ids begin with."""
        return f"{self.topic_prefix}{self.app_id}"

    @property
    def models(self) -> list[str]:
        """What a request's `model` may say, as far as the settings tell."""
        return [name for name in (self.model, self.second_model) if name] + list(adapter_folders(self.adapters))

    def topic(self, name: str) -> str:
        return f"{self.topic_prefix}{name}"


def networks_of(value: str) -> frozenset[str]:
    return frozenset(part.strip() for part in value.split(",") if part.strip())


def load_settings() -> Settings:
    """Read the settings; raises `SettingsError` with one line, warns of unknown `PARLEY_` names."""
    try:
        settings = Settings()
    except ValidationError as error:
        raise SettingsError(_one_line(error)) from None
    for name in unknown_names(named()):
        warnings.warn(f"{name} is not a setting of Parley; it is ignored", UnknownSettingWarning, stacklevel=2)
    return settings


@lru_cache(maxsize=1)
def settings() -> Settings:
    """The settings of this process."""
    return load_settings()


def unknown_names(names: Iterable[str]) -> list[str]:
    known = {PREFIX + field.upper() for field in Settings.model_fields}
    return sorted({name for name in names if name.upper().startswith(PREFIX) and name.upper() not in known})


def named() -> set[str]:
    """Every name that the environment and the files set, Parley's or not."""
    files: list[Mapping[str, str | None]] = [dotenv_values(path) for path in ENV_FILES if path.is_file()]
    return {name for source in (os.environ, *files) for name in source}


def _one_line(error: ValidationError) -> str:
    def describe(place: tuple[int | str, ...], message: str, given: object) -> str:
        message = message.removeprefix("Value error, ")
        if not place:
            return message
        name = PREFIX + str(place[0]).upper()
        secret = Settings.model_fields[str(place[0])].repr is False
        return f"{name}: {message}" if secret else f"{name}={given!s}: {message}"

    return "; ".join(describe(e["loc"], e["msg"], e["input"]) for e in error.errors())
