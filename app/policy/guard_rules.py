"""`[guard]` of the policy file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

from app.policy.mistakes import Mistake, url_mistake

ENTITIES = ("EMAIL_ADDRESS", "PHONE_NUMBER", "CREDIT_CARD", "IBAN_CODE", "IP_ADDRESS", "PERSON", "LOCATION")
NAMED = frozenset({"PERSON", "LOCATION"})
"""Entities that need a language model; patterns and checksums find the others."""

PROFANITY = "profanity"
INJECTION = "injection"
UNJUDGED = "unjudged"
"""The category of a request that ends because there is no verdict about it."""
TOO_MANY = "too_many_values"
"""The category of a request that ends because it has more private values than a plan can hold."""

Action = Literal["block", "flag", "off"]


class ModerationServer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An outside server with OpenAI's moderation API. `url` ends like `/v1`; `api_key_env` is the environment variable
    with the key.
    """

    url: str
    model: str = "omni-moderation-latest"
    api_key_env: str | None = None

    def mistakes(self) -> Iterator[Mistake]:
        """What the types cannot express."""
        if (why := url_mistake(self.url)) is not None:
            yield Mistake("url", f"the url {why}")


class GuardRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """With `pii` `mask` or `redact`, models see placeholders instead of the private values of these entities.

    `pii_model` is the spaCy pipeline that finds names and places: a package or a folder; the default is the one of the
    extra `guard`. `phone_regions` are countries whose national phone numbers are recognized. What scores below
    `pii_threshold` is no private value. `on_failure`: without a verdict, within `timeout_s`, a request is `closed`
    (ends as `filtered`) or `open` (goes on unmasked, and not judged).

    `prompt` and `answer` say what happens to a text of a category: `block` ends the answer as `filtered`, `flag` notes
    the category in the turn and the audit. `profanity` and `injection` are built in; others are labels of the
    `classifier`, a folder with a text classifier of Hugging Face, categories of the `judges` of other packages, each a
    table with its settings, or those of the `moderation` server. A text
    belongs to a category if its score is at least the threshold, by default the judge's own.
    """

    pii: Literal["off", "mask", "redact"] = "off"
    pii_entities: tuple[str, ...] = tuple(one for one in ENTITIES if one != "LOCATION")
    pii_model: str | None = None
    pii_language: str = "en"
    pii_threshold: float = 0.4
    phone_regions: tuple[str, ...] = ("US", "GB", "DE", "FR", "ES", "IT", "NL", "IN")
    timeout_s: float = 10.0
    on_failure: Literal["closed", "open"] = "closed"
    prompt: dict[str, Action] = {}
    answer: dict[str, Action] = {}
    thresholds: dict[str, float] = {}
    moderation: ModerationServer | None = None
    classifier: str | None = None
    judges: dict[str, dict[str, Any]] = {}

    @property
    def masks(self) -> bool:
        return self.pii != "off"

    @property
    def judges_prompts(self) -> bool:
        return bool(judged(self.prompt))

    @property
    def judges_answers(self) -> bool:
        return bool(judged(self.answer))

    @property
    def is_on(self) -> bool:
        return self.reads_prompts or self.judges_answers

    @property
    def reads_prompts(self) -> bool:
        return self.masks or self.judges_prompts

    @property
    def needs_names(self) -> bool:
        return bool(NAMED & {*self.pii_entities})

    def mistakes(self) -> Iterator[Mistake]:
        """What the types cannot express."""
        for unknown in sorted({*self.pii_entities} - {*ENTITIES}):
            yield Mistake(
                "pii_entities", f"pii_entities: there is no entity {unknown!r}; there are {', '.join(ENTITIES)}"
            )
        if self.masks and not self.pii_entities:
            yield Mistake("pii pii_entities", "pii_entities is empty; use pii = 'off'")
        if not 0 < self.pii_threshold <= 1:
            yield Mistake("pii_threshold", "pii_threshold must be above 0 and at most 1")
        if not 0 < self.timeout_s < float("inf"):
            yield Mistake("timeout_s", "timeout_s must be above 0")
        if judged(self.answer) & {INJECTION}:
            yield Mistake("answer", f"answer: {INJECTION} is a category of prompts")
        yield from self._of_categories()

    def _of_categories(self) -> Iterator[Mistake]:
        categories = {*self.prompt, *self.answer}
        for name in sorted({UNJUDGED, TOO_MANY} & categories):
            yield Mistake("", f"{name} means that there is no verdict; it cannot be judged")
        others = sorted(categories - {PROFANITY, INJECTION})
        if others and self.moderation is None and self.classifier is None and not self.judges:
            yield Mistake(
                "classifier moderation judges",
                f"{', '.join(others)}: needs a classifier or a moderation server; without: {PROFANITY}, {INJECTION}",
            )
        for name in sorted(self.thresholds.keys() - categories):
            yield Mistake("prompt answer", f"thresholds.{name}: prompt and answer do not name this category")
        if not all(0 < threshold <= 1 for threshold in self.thresholds.values()):
            yield Mistake("", "thresholds must be above 0 and at most 1")


def judged(actions: Mapping[str, Action]) -> frozenset[str]:
    """The categories that are not `off`."""
    return frozenset(name for name, action in actions.items() if action != "off")
