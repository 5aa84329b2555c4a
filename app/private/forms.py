"""Forms of answers for a model that sees placeholders: it may write one wherever the form allows its value.

A schema's own texts are hidden as the prompt's are. A string with a `format`, a `pattern` or a length may also be the
placeholder of a value that satisfies these, so readers get what the schema asks for. Patterns come from callers: each
is tried for a moment, and once one has taken longer, no pattern of the form allows a placeholder. Of very many such
strings, the first ones allow them.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterator, Mapping
from typing import Any

import regex

from app.private.mask import Mask, in_strings
from app.private.value import PrivateValue

_MOST = 64
"""Placeholders that a string may be: the values of the request come before those of its memory."""
_MOST_STRINGS = 256
_MOST_RULES = 64
_PATTERN_S = 0.02
_SCHEMAS = ("items", "additionalProperties", "contains", "if", "then", "else")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_TABLES = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")
_WORDS = ("type", "format", "$ref", "$schema", "$id", "$anchor")
_LIMITS = ("format", "pattern", "minLength", "maxLength")
_OTHER_FORMATS = frozenset(
    {
        "date",
        "date-time",
        "time",
        "duration",
        "uuid",
        "uri",
        "uri-reference",
        "iri",
        "hostname",
        "json-pointer",
        "regex",
    }
)


class MaskedForm:
    """`hides`: whether the texts of schemas are hidden, too."""

    def __init__(self, mask: Mask, *, hides: bool = True) -> None:
        self._mask = mask
        self._hides = hides
        self._is_slow = False
        self._strings = 0
        self._allowed: dict[str, list[str]] = {}  # by the rules of a string

    def schema(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """The schema as the model has to follow it."""
        masked = {name: self._part(name, value) for name, value in schema.items()}
        if not _is_string(schema) or not any(name in schema for name in _LIMITS):
            return masked
        allowed = self._allowed_by({name: schema.get(name) for name in _LIMITS})
        return {"anyOf": [masked, {"enum": allowed}]} if allowed else masked

    def regex(self, rule: str) -> str:
        """The regular expression as the model has to follow it; its own text is not hidden."""
        allowed = [placeholder for one, placeholder in self._candidates() if self._matches(rule, one.value, whole=True)]
        return "|".join((f"(?:{rule})", *map(regex.escape, allowed))) if allowed else rule

    def _allowed_by(self, rules: Mapping[str, Any]) -> list[str]:
        """The placeholders that a string with these rules may be."""
        key = json.dumps(rules)
        if self._strings == _MOST_STRINGS or (key not in self._allowed and len(self._allowed) == _MOST_RULES):
            return []
        if key not in self._allowed:
            self._allowed[key] = [placeholder for one, placeholder in self._candidates() if self._fits(one, rules)]
        self._strings += bool(self._allowed[key])
        return self._allowed[key]

    def _part(self, name: str, value: Any) -> Any:
        if name in _SCHEMAS and isinstance(value, dict):
            return self.schema(value)
        if name in _LISTS and isinstance(value, list):
            return [self.schema(one) if isinstance(one, dict) else one for one in value]
        if name in _TABLES and isinstance(value, dict):
            return {self._hidden(key): self.schema(one) if isinstance(one, dict) else one for key, one in value.items()}
        return value if name in _WORDS else self._hidden(value)

    def _hidden(self, value: Any) -> Any:
        return in_strings(value, self._mask.hide) if self._hides else value

    def _candidates(self) -> Iterator[tuple[PrivateValue, str]]:
        return ((one, self._mask.hide(one.value)) for one in self._mask.values[:_MOST])

    def _fits(self, one: PrivateValue, rules: Mapping[str, Any]) -> bool:
        least, most, pattern = rules["minLength"], rules["maxLength"], rules["pattern"]
        if isinstance(least, int) and len(one.value) < least:
            return False
        if isinstance(most, int) and len(one.value) > most:
            return False
        if not _has_format(one.value, rules["format"]):
            return False
        return not isinstance(pattern, str) or self._matches(pattern, one.value)

    def _matches(self, pattern: str, value: str, *, whole: bool = False) -> bool:
        if self._is_slow:
            return False
        try:
            matched = (regex.fullmatch if whole else regex.search)(pattern, value, timeout=_PATTERN_S)
        except TimeoutError:
            self._is_slow = True
            return False
        except (regex.error, RecursionError, OverflowError):
            return False
        return matched is not None


def _is_string(schema: Mapping[str, Any]) -> bool:
    kind = schema.get("type")
    return kind == "string" or (isinstance(kind, list) and "string" in kind)


def _has_format(value: str, name: object) -> bool:
    if name in {"email", "idn-email"}:
        return "@" in value
    if name in {"ipv4", "ipv6"}:
        try:
            return ipaddress.ip_address(value).version == int(str(name)[-1])
        except ValueError:
            return False
    return name not in _OTHER_FORMATS
