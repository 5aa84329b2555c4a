"""The policy file: its structure, and what is wrong within a single table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import msgspec
from parley_client.plugins.discovery import Kind

from app.plugins.known import own
from app.policy.agents import AgentRules
from app.policy.foreign import EgressRules, IntakeRules
from app.policy.guard_rules import GuardRules
from app.policy.mistakes import Mistake, plugin_mistake, url_mistake
from app.policy.pages import PageRules
from app.policy.tools import ToolRules
from app.prices import Price
from app.settings.model import option_mistake
from app.wire.request import MAX_RECALL, Priority

DEFAULT_MODEL = "default"
"""The name of `PARLEY_MODEL`."""
AUTO_MODEL = "auto"
"""A request that names this model is routed like one that names none: OpenAI's clients have to name a model."""
OWN_ENGINES = frozenset(one.name for one in own(Kind.ENGINES))


class PolicyError(Exception):
    """The policy cannot be used; the message is one line that names the file."""


class ModelSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model beside `PARLEY_MODEL`: a checkpoint with a `path`, or one behind `urls` of OpenAI's chat completions.

    Options that are not set have the values of the settings. `memory_share` is the part of the memory for KV caches.
    `model` is the name that the servers know, `api_key_env` the environment variable with their key. A server of the
    dialect `vllm` takes vLLM's parameters, too, and can continue an answer: a sampled one with other words, or not at
    all if `redraws` is false. `azure` is Azure OpenAI's REST API of an `api_version`, with a resource's endpoint as URL
    and a deployment as model; `triton` is the OpenAI frontend of NVIDIA's Triton. `settings` are those of an engine of
    another package.
    """

    path: str | None = None
    engine: str = "torch"
    urls: tuple[str, ...] = ()
    model: str | None = None
    api_key_env: str | None = None
    dialect: Literal["openai", "vllm", "azure", "triton"] | None = None
    api_version: str | None = None
    connect_s: float | None = None
    silence_s: float | None = None
    patience_s: float | None = None
    redraws: bool | None = None
    context_length: int | None = None
    device: str | None = None
    dtype: str | None = None
    kv_cache_gb: float | None = None
    memory_share: float | None = None
    max_running: int | None = None
    paced_tokens_per_s: float | None = None
    quantize: str | None = None
    products: str | None = None
    tool_format: str | None = None
    settings: dict[str, Any] = {}

    @property
    def options(self) -> dict[str, Any]:
        """The settings that this model has of its own."""
        names = [
            name
            for name in self.__struct_fields__
            if name not in {"path", "engine", "memory_share", "settings", *_REMOTE}
        ]
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    def mistakes(self) -> Iterator[Mistake]:
        """What the types cannot express."""
        if self.is_plugged:
            yield from self._of_plugin()
            return
        if self.settings:
            yield Mistake("settings engine", "settings is for an engine of another package")
        share = self.memory_share
        if share is not None and (self.engine != "torch" or not 0 < share < 1):
            yield Mistake("memory_share engine", "memory_share is for engine = 'torch', above 0 and below 1")
        if share is not None and self.kv_cache_gb is not None:
            yield Mistake("memory_share kv_cache_gb", "memory_share and kv_cache_gb exclude each other")
        for name, value in self.options.items():
            if (why := option_mistake(name, value)) is not None:
                yield Mistake(name, f"{name} {why}")
        yield from self._of_servers() if self.engine == "openai" else self._of_files()

    @property
    def is_plugged(self) -> bool:
        """Whether another package brings its engine."""
        return self.engine not in OWN_ENGINES

    @property
    def has_files(self) -> bool:
        """Whether this machine loads it."""
        return not self.is_plugged and self.engine != "openai"

    def _of_plugin(self) -> Iterator[Mistake]:
        if (mistake := plugin_mistake("engine", Kind.ENGINES, self.engine)) is not None:
            yield mistake
            return
        others = [name for name in ("path", "memory_share", *_REMOTE) if getattr(self, name)]
        for name in sorted([*self.options, *others]):
            yield Mistake(f"{name} engine", f"{name} does not apply to engine = '{self.engine}'; it has settings")

    def _of_files(self) -> Iterator[Mistake]:
        if not self.path:
            yield Mistake("path engine", "needs a path")
        if self.engine == "vllm" and self.quantize:
            yield Mistake("quantize engine", "quantize does not apply to engine = 'vllm'")
        for name in _REMOTE:
            if getattr(self, name):
                yield Mistake(f"{name} engine", f"{name} is for engine = 'openai'")

    def _of_servers(self) -> Iterator[Mistake]:
        for name in sorted(self.options.keys() - {"max_running", "context_length"}) + ["path"] * bool(self.path):
            yield Mistake(f"{name} engine", f"{name} does not apply to engine = 'openai'")
        if not self.urls or not self.model:
            yield Mistake("urls model engine", "engine = 'openai' needs urls and model")
        for at, url in enumerate(self.urls):
            if (why := url_mistake(url)) is not None:
                yield Mistake("urls", f"urls[{at}] {why}")
        if self.context_length == 0:
            yield Mistake("context_length engine", "context_length must be above 0 for engine = 'openai'")
        if (self.dialect == "azure") != bool(self.api_version):
            yield Mistake("dialect api_version", "dialect = 'azure' needs an api_version, and no other dialect has one")
        for name in ("connect_s", "silence_s", "patience_s"):
            if (value := getattr(self, name)) is not None and not 0 < value < float("inf"):
                yield Mistake(name, f"a time must be above 0: {name}")


_REMOTE = (
    "urls", "model", "api_key_env", "dialect", "api_version", "connect_s", "silence_s", "patience_s", "redraws",
)  # fmt: skip


class When(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which requests a route takes. All conditions that are set have to hold.

    `prompt_tokens_below` counts the request's own prompt, without the conversation. The conditions about load have to
    hold for `for_s` seconds.
    """

    prompt_tokens_below: int | None = None
    tenant: tuple[str, ...] | None = None
    priority: tuple[Priority, ...] | None = None
    first_token_p95_ms_above: float | None = None
    queue_above: int | None = None
    for_s: float = 0.0

    @property
    def watches_load(self) -> bool:
        return self.first_token_p95_ms_above is not None or self.queue_above is not None

    def mistakes(self) -> Iterator[Mistake]:
        """What the types cannot express."""
        yield from _unless_lasting("for_s", self.for_s)


class Until(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a route that depends on load ends; without it, as soon as its conditions do not hold."""

    first_token_p95_ms_below: float | None = None
    queue_below: int | None = None
    for_s: float = 0.0

    def mistakes(self) -> Iterator[Mistake]:
        """What the types cannot express."""
        yield from _unless_lasting("for_s", self.for_s)


def _unless_lasting(name: str, seconds: float) -> Iterator[Mistake]:
    if not 0 <= seconds < float("inf"):
        yield Mistake(name, f"{name} must be at least 0")


class Arm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    model: str
    weight: float

    def mistakes(self) -> Iterator[Mistake]:
        """What the types cannot express."""
        if not 0 <= self.weight < float("inf"):
            yield Mistake("weight", "a weight must be a number of at least 0")


class Retreat(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `arm` loses its users if its share of failures rises by `more_errors` above that of the other arms, or its
    share of slow first tokens by `more_slow` (see canary.py).
    """

    arm: str
    more_errors: float = 0.05
    more_slow: float = 0.15

    def mistakes(self) -> Iterator[Mistake]:
        """What the types cannot express."""
        for name in ("more_errors", "more_slow"):
            if not 0 < getattr(self, name) < 1:
                yield Mistake(name, f"{name} must be above 0 and below 1")


class Route(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Names a `model`, or an `experiment` and its `arms`. `notice` informs readers of the route."""

    name: str
    when: When = When()
    until: Until | None = None
    model: str | None = None
    experiment: str | None = None
    arms: tuple[Arm, ...] = ()
    notice: Literal["degraded"] | None = None
    retreat: Retreat | None = None

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(arm.model for arm in self.arms) if self.model is None else (self.model,)

    def mistakes(self) -> Iterator[Mistake]:
        """What the types cannot express."""
        if (self.model is None) == (not self.arms) or bool(self.arms) != (self.experiment is not None):
            yield Mistake("model arms experiment", "needs either model, or experiment and arms")
        if len({arm.model for arm in self.arms}) < len(self.arms):
            yield Mistake("arms", "two arms have the same model")
        if self.arms and not any(arm.weight for arm in self.arms):
            yield Mistake("arms", "all weights are 0")
        others = [arm for arm in self.arms if self.retreat is None or arm.model != self.retreat.arm]
        if self.retreat is not None and (len(others) == len(self.arms) or not any(arm.weight for arm in others)):
            yield Mistake("arms retreat", "retreat: arm must be one of several arms, and another one needs a weight")
        if self.until is not None and not self.when.watches_load:
            yield Mistake("until when", "until needs a condition about load in when")


class Fallback(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who answers if a model fails: the next of the `chain`. A model that fails `failures` times within `window_s` is
    left out for `retry_s`.
    """

    chain: tuple[str, ...] = ()
    failures: int = 3
    window_s: float = 30.0
    retry_s: float = 60.0

    def mistakes(self) -> Iterator[Mistake]:
        """What the types cannot express."""
        if len(set(self.chain)) < len(self.chain) or len(self.chain) == 1:
            yield Mistake("chain", "chain needs at least two models, each once")
        for name in ("failures", "window_s", "retry_s"):
            if not 0 < getattr(self, name) < float("inf"):
                yield Mistake(name, f"{name} must be above 0")


class CacheRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Answers to identical, deterministic requests of one user, or of one tenant, are kept for `ttl_s`, in at most
    `max_mb` megabytes of each worker.
    """

    ttl_s: float
    scope: Literal["user", "tenant"] = "user"
    max_mb: float = 64.0

    def mistakes(self) -> Iterator[Mistake]:
        """What the types cannot express."""
        for name in ("ttl_s", "max_mb"):
            if not 0 < getattr(self, name) < float("inf"):
                yield Mistake(name, f"{name} must be above 0")


class RecallRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """So many related older turns stand in the prompt of a request that does not set `recall`. Finding them takes at
    most `budget_ms`.
    """

    turns: int = 0
    budget_ms: float = 250.0

    def mistakes(self) -> Iterator[Mistake]:
        """What the types cannot express."""
        if not 0 <= self.turns <= MAX_RECALL:
            yield Mistake("turns", f"turns must be at least 0 and at most {MAX_RECALL}")
        if not 0 < self.budget_ms < float("inf"):
            yield Mistake("budget_ms", "budget_ms must be above 0")


class PriceRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of 1,000 tokens. Without `cached`, prompt tokens from the prefix cache cost the same as others."""

    prompt: float
    answer: float
    cached: float | None = None

    @property
    def price(self) -> Price:
        return Price(self.prompt, self.answer, self.prompt if self.cached is None else self.cached)

    def mistakes(self) -> Iterator[Mistake]:
        """What the types cannot express."""
        for name in ("prompt", "answer", "cached"):
            if not 0 <= (getattr(self, name) or 0.0) < float("inf"):
                yield Mistake(name, f"a price must be a number of at least 0: {name}")


class TenantRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a tenant may ask for; what is not set is not limited. `priority` is the highest that its requests may have,
    `cost_per_month` counts by calendar month in UTC, in the unit of the prices. `region` and `group` name the
    deployment that serves the tenant: others refuse it. `tools` are those that programs may run for it (`tool_mode`
    `kafka`). `user_requests_per_min` is the limit of each of its users, which workers count. With `training`,
    `parley export` may write its turns as training data.
    """

    region: str | None = None
    group: str | None = None
    models: tuple[str, ...] | None = None
    adapters: tuple[str, ...] | None = None
    tools: tuple[str, ...] | None = None
    priority: Priority = Priority.INTERACTIVE
    requests_per_min: int | None = None
    user_requests_per_min: int | None = None
    tokens_per_min: int | None = None
    cost_per_month: float | None = None
    training: bool = False

    @property
    def has_quota(self) -> bool:
        return (self.requests_per_min, self.tokens_per_min, self.cost_per_month) != (None, None, None)

    def mistakes(self) -> Iterator[Mistake]:
        """What the types cannot express."""
        for name in ("requests_per_min", "user_requests_per_min", "tokens_per_min", "cost_per_month"):
            if not 0 <= (getattr(self, name) or 0) < float("inf"):
                yield Mistake(name, f"a limit must be a number of at least 0: {name}")


class WaitRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An answer that has waited for a tool for `park_after_s` sleeps: it is open no longer. So many may sleep at once:
    of a user, and in each partition of a tenant, of all, and in megabytes of the table. Those beyond wait as without
    this table, for an hour at most.
    """

    park_after_s: float = 10.0
    per_user: int = 64
    per_tenant: int = 10_000
    per_partition: int = 100_000
    mb_per_partition: int = 1024

    def mistakes(self) -> Iterator[Mistake]:
        """What the types cannot express."""
        if not 0 <= self.park_after_s < float("inf"):
            yield Mistake("park_after_s", "park_after_s must be at least 0")
        for name in ("per_user", "per_tenant", "per_partition", "mb_per_partition"):
            if getattr(self, name) < 1:
                yield Mistake(name, f"{name} must be at least 1")


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    models: dict[str, ModelSpec] = {}
    routes: tuple[Route, ...] = ()
    fallback: Fallback = Fallback()
    cache: CacheRules | None = None
    recall: RecallRules = RecallRules()
    prices: dict[str, PriceRule] = {}
    tenants: dict[str, TenantRule] = {}
    guard: GuardRules = GuardRules()
    intake: tuple[IntakeRules, ...] = ()
    egress: tuple[EgressRules, ...] = ()
    pages: tuple[PageRules, ...] = ()
    waits: WaitRules | None = None
    tools: dict[str, ToolRules] = {}
    agents: dict[str, AgentRules] = {}
    plugins: dict[str, dict[str, Any]] = {}

    @property
    def names(self) -> list[str]:
        """The values of a request's `model` that this policy adds."""
        return [*self.models, *([AUTO_MODEL] if self.routes else [])]

    @property
    def price_of_model(self) -> dict[str, Price]:
        return {name: rule.price for name, rule in self.prices.items()}


NO_POLICY = Policy()
