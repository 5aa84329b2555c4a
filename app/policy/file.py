"""The policy file: its structure, and how it is read and checked."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from app.wire.request import Priority

DEFAULT_MODEL = "default"
"""The name of `PARLEY_MODEL`."""
AUTO_MODEL = "auto"
"""A request that names this model is routed like one that names none: OpenAI's clients have to name a model."""
MAX_POLICY_BYTES = 1 << 20


class PolicyError(Exception):
    """The policy cannot be used; the message is one line that names the file."""


class ModelSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model beside `PARLEY_MODEL`. Options that are not set have the values of the settings."""

    path: str
    engine: Literal["torch", "vllm", "paced"] = "torch"
    context_length: int | None = None
    device: str | None = None
    dtype: str | None = None
    kv_cache_gb: float | None = None
    max_running: int | None = None
    paced_tokens_per_s: float | None = None
    quantize: str | None = None
    tool_format: str | None = None

    @property
    def options(self) -> dict[str, Any]:
        """The settings that this model has of its own."""
        names = [name for name in self.__struct_fields__ if name not in {"path", "engine"}]
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}


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


class Route(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Names a `model`, or an `experiment` and its `arms`. `notice` tells readers that the route was taken."""

    name: str
    when: When = When()
    until: Until | None = None
    model: str | None = None
    experiment: str | None = None
    arms: tuple[Arm, ...] = ()
    notice: Literal["degraded"] | None = None

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(arm.model for arm in self.arms) if self.model is None else (self.model,)


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    models: dict[str, ModelSpec] = {}
    routes: tuple[Route, ...] = ()

    @property
    def names(self) -> list[str]:
        """The values of a request's `model` that this policy adds."""
        return [*self.models, *([AUTO_MODEL] if self.routes else [])]


NO_POLICY = Policy()


def read_policy(path: Path | None) -> Policy:
    """The policy in this file, an empty one without a file; raises `PolicyError`."""
    if path is None:
        return NO_POLICY
    try:
        with path.open("rb") as file:
            text = file.read(MAX_POLICY_BYTES + 1)
        if len(text) > MAX_POLICY_BYTES:
            raise PolicyError(f"policy {path}: is larger than {MAX_POLICY_BYTES} bytes")
        policy = msgspec.convert(tomllib.loads(text.decode()), Policy)
    except OSError as error:
        raise PolicyError(f"policy {path}: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PolicyError(f"policy {path}: not TOML: {error}") from None
    except msgspec.ValidationError as error:
        raise PolicyError(f"policy {path}: {error}") from None
    for wrong in _mistakes(policy):
        raise PolicyError(f"policy {path}: {wrong}")
    return policy


def _mistakes(policy: Policy) -> Iterator[str]:
    """What the types cannot express."""
    names = {DEFAULT_MODEL, *policy.models}
    for reserved in sorted({DEFAULT_MODEL, AUTO_MODEL} & policy.models.keys()):
        yield f"models.{reserved}: this name has a meaning of its own; choose another"
    for at, route in enumerate(policy.routes):
        place = f"routes[{at}] ({route.name})"
        if route.name in {one.name for one in policy.routes[:at]}:
            yield f"{place}: another route has this name"
        if (route.model is None) == (not route.arms) or bool(route.arms) != (route.experiment is not None):
            yield f"{place}: needs either model, or experiment and arms"
        for unknown in sorted({*route.models} - names):
            yield f"{place}: there is no model {unknown!r}; there are {', '.join(sorted(names))}"
        if len({arm.model for arm in route.arms}) < len(route.arms):
            yield f"{place}: two arms have the same model"
        if any(not 0 <= arm.weight < float("inf") for arm in route.arms):
            yield f"{place}: a weight must be a number of at least 0"
        if route.arms and not any(arm.weight for arm in route.arms):
            yield f"{place}: all weights are 0"
        if route.until is not None and not route.when.watches_load:
            yield f"{place}: until needs a condition about load in when"
        if route.when.for_s < 0 or (route.until is not None and route.until.for_s < 0):
            yield f"{place}: for_s must be at least 0"
