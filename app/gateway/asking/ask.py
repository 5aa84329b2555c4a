"""The body of `POST /v1/requests`: a record of `requests` without the fields that the gateway sets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.gateway.callers.identity import Identity
from app.gateway.edge.errors import invalid
from app.wire.codec import PROMPTS
from app.wire.ids import new_request_id
from app.wire.request import DEFAULT_CONVERSATION, Request, RequestFields
from app.wire.response_format import FormatType, JsonSchema, ResponseFormat

_MOST, _LONGEST = 6, 100


class FormatBody(ResponseFormat, frozen=True, kw_only=True, rename={"schema_": "schema"}):
    """`schema` beside `type` is the form of Together, Fireworks and llama.cpp."""

    schema_: dict[str, Any] | None = None

    @property
    def response_format(self) -> ResponseFormat:
        """Raises `ApiError`."""
        if self.schema_ is not None and self.json_schema is not None:
            raise invalid("response_format", "has both schema and json_schema")
        if self.schema_ and self.type in {FormatType.JSON_OBJECT, FormatType.JSON_SCHEMA}:
            return ResponseFormat(type=FormatType.JSON_SCHEMA, json_schema=JsonSchema(schema_=self.schema_))
        if self.schema_:
            raise invalid("response_format", f"schema does not belong to the type {self.type}")
        return ResponseFormat(**{name: getattr(self, name) for name in ResponseFormat.__struct_fields__})


class AskBody(RequestFields, frozen=True, kw_only=True):
    response_format: FormatBody | None = None

    def check_prompt(self, ignored: Sequence[str]) -> None:
        """Raise `ApiError` unless one field asks. `ignored`: fields without effect, of which one may be misnamed."""
        names = dict(zip(self.__struct_fields__, self.__struct_encode_fields__, strict=True))
        given = [name for name in PROMPTS if getattr(self, name) is not None]
        if len(given) > 1:
            raise invalid(given[1], f"excludes {names[given[0]]}")
        if not given and (self.fork is None or self.fork.index is None):
            got = ", ".join(name[:_LONGEST] for name in ignored[:_MOST])
            raise invalid("prompt", f"is missing; without effect: {got}" if got else "is missing")

    def request(self, identity: Identity, *, store: bool = True, conversation: str | None = None) -> Request:
        """`store` and `conversation` apply if the body has none."""
        fields = {name: getattr(self, name) for name in RequestFields.__struct_fields__}
        named = self.conversation_id
        fields |= {
            "request_id": self.request_id or new_request_id(),
            "user_id": identity.user_id,
            "tenant": identity.tenant,
            "conversation_id": named if named != DEFAULT_CONVERSATION else conversation or named,
            "store": store if self.store is None else self.store,
            "max_tokens": None if self.max_tokens == -1 else self.max_tokens,
            "response_format": None if self.response_format is None else self.response_format.response_format,
        }
        return Request(**fields)
