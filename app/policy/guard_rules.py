"""`[guard]` of the policy file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

ENTITIES = ("EMAIL_ADDRESS", "PHONE_NUMBER", "CREDIT_CARD", "IBAN_CODE", "IP_ADDRESS", "PERSON", "LOCATION")
NAMED = frozenset({"PERSON", "LOCATION"})
"""Entities that need a language model; patterns and checksums find the others."""


class GuardRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """With `pii` `mask` or `redact`, models see placeholders instead of the private values of these entities.

    `pii_model` is the spaCy pipeline that finds names and places: a package or a folder; the default is the one of the
    extra `guard`. `phone_regions` are countries whose national phone numbers are recognized. What scores below
    `pii_threshold` is no private value. `on_failure`: without a verdict, within `timeout_s`, a request is `closed`
    (ends as `filtered`) or `open` (goes on unmasked).
    """

    pii: Literal["off", "mask", "redact"] = "off"
    pii_entities: tuple[str, ...] = ENTITIES[:-1]
    pii_model: str | None = None
    pii_language: str = "en"
    pii_threshold: float = 0.4
    phone_regions: tuple[str, ...] = ("US", "GB", "DE", "FR", "ES", "IT", "NL", "IN")
    timeout_s: float = 10.0
    on_failure: Literal["closed", "open"] = "closed"

    @property
    def masks(self) -> bool:
        return self.pii != "off"

    @property
    def needs_names(self) -> bool:
        return bool(NAMED & {*self.pii_entities})

    def mistakes(self) -> Iterator[str]:
        """What the types cannot express."""
        for unknown in sorted({*self.pii_entities} - {*ENTITIES}):
            yield f"pii_entities: there is no entity {unknown!r}; there are {', '.join(ENTITIES)}"
        if self.masks and not self.pii_entities:
            yield "pii_entities is empty; use pii = 'off'"
        if not 0 < self.pii_threshold <= 1:
            yield "pii_threshold must be above 0 and at most 1"
        if not 0 < self.timeout_s < float("inf"):
            yield "timeout_s must be above 0"
