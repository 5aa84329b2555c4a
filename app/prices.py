"""Prices of tokens by model: `PARLEY_PRICES`, and `[prices]` of the policy file, which stands above it.

    MODEL=PROMPT/ANSWER or MODEL=PROMPT/ANSWER/CACHED, each per 1,000 tokens; separate entries with `,`

`MODEL` is a model version, the name before its `@`, or `*` for all others; models without an entry cost nothing. Cached
tokens are prompt tokens that were served from the prefix cache; without a third price they cost the same as prompt
tokens. The currency is up to you.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from models.interface.generation import Usage

PER = 1000


@dataclass(frozen=True, slots=True)
class Price:
    """Prices per 1,000 tokens."""

    prompt: float
    answer: float
    cached: float

    def of(self, usage: Usage) -> float:
        cached = min(usage.cached_tokens, usage.prompt_tokens)
        fresh = usage.prompt_tokens - cached
        return (fresh * self.prompt + cached * self.cached + usage.completion_tokens * self.answer) / PER


FREE = Price(0.0, 0.0, 0.0)


class HasPrices(Protocol):
    """What prices need of a policy."""

    @property
    def price_of_model(self) -> Mapping[str, Price]: ...


@dataclass(frozen=True, slots=True)
class Prices:
    of_model: dict[str, Price] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Prices:
        """Raises `ValueError` with one line."""
        return cls(dict(_one(part.strip()) for part in text.split(",") if part.strip()))

    @classmethod
    def by(cls, prices: str, policy: HasPrices) -> Prices:
        return cls(cls.parse(prices).of_model | {**policy.price_of_model})

    def find(self, model_version: str) -> Price:
        name = model_version.partition("@")[0]
        return self.of_model.get(model_version) or self.of_model.get(name) or self.of_model.get("*") or FREE


class PriceList:
    """The prices in force. An answer from the response cache costs nothing."""

    def __init__(self, prices: str, policy: HasPrices) -> None:
        """`prices` is the value of the setting."""
        self._of_settings = prices
        self.use(policy)

    def use(self, policy: HasPrices) -> None:
        self._prices = Prices.by(self._of_settings, policy)

    @property
    def is_on(self) -> bool:
        """Whether any model has a price."""
        return bool(self._prices.of_model)

    def cost(self, model_version: str, usage: Usage, *, is_cached: bool) -> float:
        return 0.0 if is_cached else self._prices.find(model_version).of(usage)

    def saved(self, model_version: str, usage: Usage, *, default: str, is_cached: bool) -> float:
        """What the answer would have cost without the cache, or what it would have cost more of the `default` model."""
        price = self._prices.find(model_version).of(usage)
        return price if is_cached else max(0.0, self._prices.find(default).of(usage) - price)


def _one(part: str) -> tuple[str, Price]:
    model, _, amounts = part.rpartition("=")
    try:
        numbers = [float(number) for number in amounts.split("/")]
    except ValueError:
        numbers = []
    if not model or len(numbers) not in {2, 3} or not all(0 <= number < float("inf") for number in numbers):
        raise ValueError(f"{part!r} is not a price; write MODEL=PROMPT/ANSWER, per 1,000 tokens")
    prompt, answer, *cached = numbers
    return model.strip(), Price(prompt, answer, cached[0] if cached else prompt)
