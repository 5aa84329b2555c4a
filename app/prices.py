"""Prices of tokens by model: `PARLEY_PRICES`.

    MODEL=PROMPT/ANSWER or MODEL=PROMPT/ANSWER/CACHED, each per 1,000 tokens; separate entries with `,`

`MODEL` is a model version, the name before its `@`, or `*` for all others; models without an entry cost nothing. Cached
tokens are prompt tokens that were served from the prefix cache; without a third price they cost the same as prompt
tokens. The currency is up to you.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from models.generation import Usage

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


@dataclass(frozen=True, slots=True)
class Prices:
    of_model: dict[str, Price] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Prices:
        """Raises `ValueError` with one line."""
        return cls(dict(_one(part.strip()) for part in text.split(",") if part.strip()))

    def find(self, model_version: str) -> Price:
        name = model_version.partition("@")[0]
        return self.of_model.get(model_version) or self.of_model.get(name) or self.of_model.get("*") or FREE


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
