"""The paths that the policy adds (`[[pages]]`), each with a body whose fields have the names of its callers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, cast

import msgspec

from app.gateway.asking.ask import AskBody
from app.gateway.asking.openapi import EVENTS, TEXT, replies, schema_of
from app.gateway.callers.identity import Identity
from app.policy.file import Policy
from app.policy.pages import PageRules
from app.wire.ids import MAX_REQUEST_ID_LENGTH, Name
from app.wire.request import Request

_NOTHING: Mapping[str, PolicyPage] = MappingProxyType({})


class PageBody(AskBody, frozen=True, kw_only=True):
    """A call that names no conversation is one of its own."""

    conversation_id: Name = ""

    def request(self, identity: Identity, *, store: bool = True, conversation: str | None = None) -> Request:
        asked = super().request(identity, store=store)
        own = self.conversation_id or conversation or asked.request_id[:MAX_REQUEST_ID_LENGTH]
        return msgspec.structs.replace(asked, conversation_id=own)


@dataclass(frozen=True, slots=True)
class PolicyPage:
    """One path with one method. Its `path` is the name of the route in metrics and traces."""

    rules: PageRules
    body: type[PageBody]

    @classmethod
    def of(cls, rules: PageRules) -> PolicyPage:
        fields = [one for one in msgspec.structs.fields(PageBody) if one.name in rules.fields]
        renamed = [(one.name, one.type, one.default) for one in fields]
        body = msgspec.defstruct(
            "PageBody", renamed, bases=(PageBody,), frozen=True, kw_only=True, rename=dict(rules.fields)
        )
        return cls(rules, cast("type[PageBody]", body))

    @property
    def path(self) -> str:
        return self.rules.path

    @property
    def shows_text(self) -> bool:
        return self.rules.format != "events"

    def theirs(self, name: str) -> str:
        """What callers call this field."""
        return self.rules.fields.get(name, name)

    def described(self) -> dict[str, Any]:
        """The operation in the OpenAPI document."""
        kinds = {"text": TEXT, "raw": EVENTS, "data": EVENTS, "events": EVENTS}
        described = {"tags": ["pages"], "summary": "Ask", "responses": replies(kinds[self.rules.format], 404, 500, 504)}
        body = schema_of(self.body)
        if self.rules.method == "POST":
            return {**described, **body}
        schemas: Any = body["requestBody"]
        properties = schemas["content"]["application/json"]["schema"]["properties"]
        names = dict.fromkeys((self.theirs("prompt"), *self.rules.fields.values()))
        parameters = [
            {"name": name, "in": "query", "required": name == self.theirs("prompt"), "schema": properties[name]}
            for name in names
        ]
        return {**described, "parameters": parameters}


class Pages:
    """The pages of the policy that is in force, by path and method."""

    def __init__(self, policy: Policy) -> None:
        self._rules: tuple[PageRules, ...] = ()
        self._pages: dict[str, dict[str, PolicyPage]] = {}
        self.described: dict[str, Any] = {}
        self.use(policy)

    def use(self, policy: Policy) -> None:
        if policy.pages == self._rules:
            return
        self._rules, self._pages, self.described = policy.pages, {}, {}
        for rules in policy.pages:
            page = PolicyPage.of(rules)
            self._pages.setdefault(rules.path, {})[rules.method] = page
            if rules.method != "WS":
                self.described.setdefault(rules.path, {})[rules.method.lower()] = page.described()

    def at(self, path: str) -> Mapping[str, PolicyPage]:
        """The pages with this path, by method."""
        return self._pages.get(path, _NOTHING)
