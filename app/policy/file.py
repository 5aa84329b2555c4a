"""The policy file: its structure, and how it is read and checked."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from app.policy.foreign import EgressRules, IntakeRules, foreign_mistakes
from app.policy.guard_rules import GuardRules
from app.policy.mistakes import fitting, table_mistakes
from app.wire.limits import MAX_RECALL
from app.wire.request import Priority

DEFAULT_MODEL = "default"
"""The name of `PARLEY_MODEL`."""
AUTO_MODEL = "auto"
"""A request that names this model is routed like one that names none: OpenAI's clients have to name a model."""
MAX_POLICY_BYTES = 1 << 20

T = TypeVar("T", bound=msgspec.Struct)


class PolicyError(Exception):
    """The policy cannot be used; the message is one line that names the file."""


class ModelSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model beside `PARLEY_MODEL`: a checkpoint with a `path`, or one behind `urls` of OpenAI's chat completions.

    Options that are not set have the values of the settings. `memory_share` is the part of the memory for KV caches.
    `model` is the name that the servers know, `api_key_env` the environment variable with their key. A server of the
    dialect `vllm` takes vLLM's parameters, too, and can continue an answer: a sampled one with other words, or not at
    all if `redraws` is false. `azure` is Azure OpenAI's REST API of an `api_version`, with a resource's endpoint as URL
    and a deployment as model; `triton` is the OpenAI frontend of NVIDIA's Triton.
    """

    path: str | None = None
    engine: Literal["torch", "vllm", "paced", "openai"] = "torch"
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

    @property
    def options(self) -> dict[str, Any]:
        """The settings that this model has of its own."""
        names = [name for name in self.__struct_fields__ if name not in {"path", "engine", "memory_share", *_REMOTE}]
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    def mistakes(self) -> Iterator[str]:
        """What the types cannot express."""
        if self.memory_share is not None and (self.engine != "torch" or not 0 < self.memory_share < 1):
            yield "memory_share is for engine = 'torch', above 0 and below 1"
        if self.memory_share is not None and self.kv_cache_gb is not None:
            yield "memory_share and kv_cache_gb exclude each other"
        if self.engine != "openai":
            if not self.path:
                yield "needs a path"
            yield from (f"{name} is for engine = 'openai'" for name in _REMOTE if getattr(self, name))
            return
        for name in sorted(self.options.keys() - {"max_running", "context_length"}) + ["path"] * bool(self.path):
            yield f"{name} does not apply to engine = 'openai'"
        if not self.urls or not self.model:
            yield "engine = 'openai' needs urls and model"
        if not all(url.startswith(("http://", "https://")) for url in self.urls):
            yield "a URL must begin with http:// or https://"
        if (self.dialect == "azure") != bool(self.api_version):
            yield "dialect = 'azure' needs an api_version, and no other dialect has one"
        if min(getattr(self, name) or 1.0 for name in ("connect_s", "silence_s", "patience_s")) <= 0:
            yield "a time must be above 0"


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


class Until(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a route that depends on load ends; without it, as soon as its conditions do not hold."""

    first_token_p95_ms_below: float | None = None
    queue_below: int | None = None
    for_s: float = 0.0


class Arm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    model: str
    weight: float


class Retreat(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `arm` loses its users if its share of failures rises by `more_errors` above that of the other arms, or its
    share of slow first tokens by `more_slow` (see canary.py).
    """

    arm: str
    more_errors: float = 0.05
    more_slow: float = 0.15


class Route(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Names a `model`, or an `experiment` and its `arms`. `notice` informs readers of the route. For
    the share `shadow` of the answers, another arm is asked, too, unseen by users.
    """

    name: str
    when: When = When()
    until: Until | None = None
    model: str | None = None
    experiment: str | None = None
    arms: tuple[Arm, ...] = ()
    notice: Literal["degraded"] | None = None
    retreat: Retreat | None = None
    shadow: float = 0.0

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(arm.model for arm in self.arms) if self.model is None else (self.model,)

    def mistakes(self) -> Iterator[str]:
        """What the types cannot express."""
        if (self.model is None) == (not self.arms) or bool(self.arms) != (self.experiment is not None):
            yield "needs either model, or experiment and arms"
        if len({arm.model for arm in self.arms}) < len(self.arms):
            yield "two arms have the same model"
        if any(not 0 <= arm.weight < float("inf") for arm in self.arms):
            yield "a weight must be a number of at least 0"
        if self.arms and not any(arm.weight for arm in self.arms):
            yield "all weights are 0"
        others = [arm for arm in self.arms if self.retreat is None or arm.model != self.retreat.arm]
        if self.retreat is not None and (len(others) == len(self.arms) or not any(arm.weight for arm in others)):
            yield "retreat: arm must be one of several arms, and another one needs a weight"
        if self.retreat is not None and not all(
            0 < share < 1 for share in (self.retreat.more_errors, self.retreat.more_slow)
        ):
            yield "retreat: more_errors and more_slow must be above 0 and below 1"
        if not 0 <= self.shadow <= 1 or (self.shadow and len(self.arms) < 2):
            yield "shadow is a share from 0 to 1 of an experiment with at least two arms"
        if self.until is not None and not self.when.watches_load:
            yield "until needs a condition about load in when"
        if self.when.for_s < 0 or (self.until is not None and self.until.for_s < 0):
            yield "for_s must be at least 0"


class Fallback(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who answers if a model fails: the next of the `chain`. A model that fails `failures` times within `window_s` is
    left out for `retry_s`.
    """

    chain: tuple[str, ...] = ()
    failures: int = 3
    window_s: float = 30.0
    retry_s: float = 60.0

    def mistakes(self) -> Iterator[str]:
        """What the types cannot express."""
        if len(set(self.chain)) < len(self.chain) or len(self.chain) == 1:
            yield "chain needs at least two models, each once"
        if self.failures < 1 or self.window_s <= 0 or self.retry_s <= 0:
            yield "failures, window_s and retry_s must be above 0"


class CacheRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Answers to identical, deterministic requests of one user, or of one tenant, are kept for `ttl_s`, in at most
    `max_mb` megabytes of each worker.
    """

    ttl_s: float
    scope: Literal["user", "tenant"] = "user"
    max_mb: float = 64.0

    def mistakes(self) -> Iterator[str]:
        """What the types cannot express."""
        if not 0 < self.ttl_s < float("inf") or not 0 < self.max_mb < float("inf"):
            yield "ttl_s and max_mb must be above 0"


class RecallRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """So many related older turns stand in the prompt of a request that does not set `recall`. Finding them takes at
    most `budget_ms`.
    """

    turns: int = 0
    budget_ms: float = 250.0

    def mistakes(self) -> Iterator[str]:
        """What the types cannot express."""
        if not 0 <= self.turns <= MAX_RECALL:
            yield f"turns must be at least 0 and at most {MAX_RECALL}"
        if not 0 < self.budget_ms < float("inf"):
            yield "budget_ms must be above 0"


class PriceRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of 1,000 tokens. Without `cached`, prompt tokens from the prefix cache cost the same as others."""

    prompt: float
    answer: float
    cached: float | None = None

    def mistakes(self) -> Iterator[str]:
        """What the types cannot express."""
        if not all(0 <= price < float("inf") for price in (self.prompt, self.answer, self.cached or 0.0)):
            yield "a price must be a number of at least 0"


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

    def mistakes(self) -> Iterator[str]:
        """What the types cannot express."""
        limits = (self.requests_per_min, self.user_requests_per_min, self.tokens_per_min, self.cost_per_month)
        if any(limit is not None and not 0 <= limit < float("inf") for limit in limits):
            yield "a limit must be a number of at least 0"


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

    @property
    def names(self) -> list[str]:
        """The values of a request's `model` that this policy adds."""
        return [*self.models, *([AUTO_MODEL] if self.routes else [])]


NO_POLICY = Policy()


def read_policy(path: Path | None) -> Policy:
    """The policy in this file, an empty one without a file; raises `PolicyError`."""
    if path is None:
        return NO_POLICY
    raw = _toml(path)
    mistakes = [*_mistakes(raw)]
    if mistakes:
        more = f" (and {len(mistakes) - 1} more: `parley policy check` shows all)" if mistakes[1:] else ""
        raise PolicyError(f"policy {path}: {mistakes[0]}{more}")
    return msgspec.convert(raw, Policy)


def mistakes_in(path: Path) -> list[str]:
    """All that is wrong with this file, each in one line with its path; raises `PolicyError` if it is not TOML."""
    return [*_mistakes(_toml(path))]


def _toml(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            text = file.read(MAX_POLICY_BYTES + 1)
        if len(text) > MAX_POLICY_BYTES:
            raise PolicyError(f"policy {path}: is larger than {MAX_POLICY_BYTES} bytes")
        return tomllib.loads(text.decode())
    except OSError as error:
        raise PolicyError(f"policy {path}: {error.strerror or error}") from None
    except RecursionError:
        raise PolicyError(f"policy {path}: not TOML that can be read: it is nested too deep") from None
    except ValueError as error:  # also an integer of thousands of digits
        raise PolicyError(f"policy {path}: not TOML: {' '.join(str(error).split())}") from None


def _mistakes(raw: dict[str, Any]) -> Iterator[str]:
    """First those of single tables, then those between them."""
    yield from table_mistakes(raw, Policy)
    policy = _readable(raw)
    for reserved in sorted({DEFAULT_MODEL, AUTO_MODEL} & policy.models.keys()):
        yield f"models.{reserved}: this name has a meaning of its own; choose another"
    if sum(spec.memory_share or 0.0 for spec in policy.models.values()) >= 1:
        yield "models: the memory_shares leave nothing for the default model"
    names = {DEFAULT_MODEL, *policy.models}
    there_are = f"there are {', '.join(sorted(names))}"
    unknown_in_chain = sorted({*policy.fallback.chain} - names)
    yield from (f"fallback.chain: there is no model {unknown!r}; {there_are}" for unknown in unknown_in_chain)
    for at, route in enumerate(policy.routes):
        path = f"routes[{at}] ({route.name})"
        if route.name in {one.name for one in policy.routes[:at]}:
            yield f"{path}: another route has this name"
        for unknown in sorted({*route.models} - names):
            yield f"{path}: there is no model {unknown!r}; {there_are}"
    yield from foreign_mistakes(policy.intake, policy.egress)
    if policy.guard.pii == "redact":
        for at, rules in enumerate(policy.egress):
            if rules.per == "token":
                yield f"egress[{at}].per: 'token' would keep on {rules.topic!r} what guard.pii = 'redact' keeps nowhere"


def _readable(raw: dict[str, Any]) -> Policy:
    """What of the tables can be read that name each other; the position of routes is kept."""
    models, routes = raw.get("models", {}), raw.get("routes", [])
    return Policy(
        models={
            name: fitting(one, ModelSpec) or ModelSpec()
            for name, one in (models.items() if isinstance(models, dict) else ())
        },
        routes=tuple(
            fitting(one, Route) or Route(name=f"routes[{at}]", model=DEFAULT_MODEL)
            for at, one in enumerate(routes if isinstance(routes, list) else ())
        ),
        fallback=fitting(raw.get("fallback", {}), Fallback) or Fallback(),
        guard=fitting(raw.get("guard", {}), GuardRules) or GuardRules(),
        intake=_fitting_all(raw.get("intake", []), IntakeRules),
        egress=_fitting_all(raw.get("egress", []), EgressRules),
    )


def _fitting_all(tables: object, kind: type[T]) -> tuple[T, ...]:
    read = [fitting(one, kind) for one in (tables if isinstance(tables, list) else ())]
    return tuple(one for one in read if one is not None)
