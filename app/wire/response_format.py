"""The form that an answer's text must have: OpenAI's `response_format`, and shorter forms.

    {"type": "text"}                                            any text, the default
    {"type": "json_object"}                                     any JSON object
    {"type": "json_schema", "json_schema": {"schema": {...}}}   JSON that conforms to a schema
    {"type": "regex", "regex": "[A-Z]{2}-[0-9]+"}               text that matches the expression as a whole
    {"type": "choices", "choices": ["yes", "no"]}               one of these
    {"type": "grammar", "grammar": "start: ..."}                text of a grammar, in Lark or GBNF

`name`, `description` and `strict` of OpenAI's `json_schema` are accepted and have no effect: an answer always conforms.
"""

from __future__ import annotations

import enum
from typing import Annotated, Any

import msgspec
from msgspec import Meta

MAX_CHOICES = 1024
MAX_CHOICE_LENGTH = 4096
MAX_REGEX_LENGTH = 4096
MAX_SCHEMA_BYTES = 65536
ChosenText = Annotated[str, Meta(min_length=1, max_length=MAX_CHOICE_LENGTH)]


class FormatType(enum.StrEnum):
    TEXT = "text"
    JSON_OBJECT = "json_object"
    JSON_SCHEMA = "json_schema"
    REGEX = "regex"
    CHOICES = "choices"
    GRAMMAR = "grammar"


class JsonSchema(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename={"schema_": "schema"}):
    """An object's properties are written in the order in which `schema_` names them."""

    schema_: dict[str, Any]
    name: str | None = None
    description: str | None = None
    strict: bool | None = None


class ResponseFormat(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The field named by `type` is set, and no other; `validate_request` checks it."""

    type: FormatType
    json_schema: JsonSchema | None = None
    regex: Annotated[str, Meta(min_length=1, max_length=MAX_REGEX_LENGTH)] | None = None
    choices: Annotated[tuple[ChosenText, ...], Meta(min_length=1, max_length=MAX_CHOICES)] | None = None
    grammar: Annotated[str, Meta(min_length=1, max_length=MAX_SCHEMA_BYTES)] | None = None

    @property
    def is_json(self) -> bool:
        return self.type in {FormatType.JSON_OBJECT, FormatType.JSON_SCHEMA}
