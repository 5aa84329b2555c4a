"""Settings of a worker, and of logs, traces and usage."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings

from app.prices import Prices

_SOCKET_BYTES = 107
"""Of the path of a Unix socket."""


class WorkerSettings(BaseSettings):
    data_dir: Path = Field(Path(".parley/worker"), description="RocksDB tables; each worker needs a folder of its own")
    policy: Path | None = Field(None, description="the policy file (TOML): models, routes, experiments")
    region: str = Field(
        "", description="region of this deployment: tenants of another `region` in the policy are refused"
    )
    worker_group: str = Field("", description="group of this deployment; tenants of other groups are refused")
    batch_max_size: int = Field(32, ge=1, le=4096, description="a batch with this many prompts is flushed at once")
    batch_budget_ms: float = Field(
        5.0, ge=0, description="longest time that a prompt waits for its batch while the engine is busy"
    )
    max_in_flight: int = Field(
        64, ge=1, description="requests that run at once, per partition; three quarters of them of one user or tenant"
    )
    drain_s: float = Field(
        10.0,
        ge=0,
        description="grace period at SIGTERM: of running answers of a worker, and of open requests of a gateway",
    )
    commit_timeout_s: float = Field(60.0, gt=0, description="longest time of a commit while the broker answers")
    standby_replicas: int = Field(0, ge=0, description="standbys of each partition's tables")
    watch: str = Field(
        "child",
        description="who leaves the group for a worker whose process has died: `child`, a process of its own; the path "
        "of the socket of `parley watch`; `off`: its session times out",
    )
    usage_window_s: int = Field(60, ge=0, le=86400, description="length of a usage window; 0: no usage records")
    first_token_objective_s: float = Field(
        0.25,
        gt=0,
        description="a first token after this time is slow: for the alerts, and in `parley:objective_requests_total`",
    )
    prices: str = Field("", description="`MODEL=PROMPT/ANSWER` per 1,000 tokens, `*` for all others; several with `,`")
    log_format: Literal["text", "json"] = Field(
        "text", description="`json`: one object per line (`faust --quiet` omits the banner)"
    )
    traces: Literal["off", "otlp", "console"] = Field("off", description="OpenTelemetry traces; needs the extra `otel`")
    traces_sample: float = Field(0.1, ge=0, le=1, description="fraction of traces that are recorded")

    @field_validator("policy", mode="before")
    @classmethod
    def _empty_policy_is_unset(cls, value: object) -> object:
        return None if value == "" else value

    @field_validator("watch")
    @classmethod
    def _watch_is_a_way(cls, value: str) -> str:
        is_path = "/" in value and len(value.encode()) <= _SOCKET_BYTES
        if value not in ("child", "off") and not is_path:
            raise ValueError("must be `child`, `off`, or the path of a socket, of at most 107 bytes")
        return value

    @field_validator("prices")
    @classmethod
    def _prices_can_be_read(cls, value: str) -> str:
        Prices.parse(value)
        return value

    @property
    def here(self) -> dict[str, str]:
        """The parts of a tenant's home that this deployment has."""
        return {"region": self.region, "group": self.worker_group}
