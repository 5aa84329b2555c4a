"""The table `pages` of the policy file: paths of the gateway for callers that have paths and names of their own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec
from msgspec import inspect

from app.policy.mistakes import Mistake, unknown_names
from app.wire.request import RequestFields

_PATH = re.compile(r"(?:/(?!\.{1,2}(?:/|\Z))[A-Za-z0-9._~-]+)+")
_LONGEST_PATH = 200
OWN_ROOTS = ("/v1", "/assets")
OWN_PATHS = frozenset(
    {
        "/",
        "/approvals",
        "/favicon.svg",
        "/healthz",
        "/health",
        "/readyz",
        "/version",
        "/metrics",
        "/openapi.json",
        *OWN_ROOTS,
    }
)
_OF_A_QUERY = (inspect.StrType, inspect.IntType, inspect.FloatType, inspect.BoolType, inspect.EnumType)
USER = "user_id"
"""In a query it names the user on every path."""


class PageRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A path that asks and replies with the answer.

    method: `GET` has fields in the query, `POST` in a JSON body, `WS` in each message on a WebSocket.
    fields: A field of a request to the name that callers have for it; the others keep their names.
    format: `events` as at `GET /v1/chat`, or the text alone: `text` as it comes, `raw` the same under the type of an
        event stream, `data` as events whose data it is. On a WebSocket these three are one.
    """

    path: str
    method: Literal["GET", "POST", "WS"] = "GET"
    fields: dict[str, str] = {}
    format: Literal["text", "data", "raw", "events"] = "events"

    def mistakes(self) -> Iterator[Mistake]:
        """What the types cannot express."""
        if self.path in OWN_PATHS or self.path.startswith(tuple(f"{root}/" for root in OWN_ROOTS)):
            yield Mistake("path", f"path: {self.path!r} is a path of the gateway's own")
        elif not _PATH.fullmatch(self.path) or len(self.path) > _LONGEST_PATH:
            yield Mistake(
                "path",
                "path: must be as /chat or /chat/now: names of A-Z a-z 0-9 . _ ~ - behind single slashes, none at the "
                f"end, no pattern, and at most {_LONGEST_PATH} characters",
            )
        yield from unknown_names("fields", self.fields, RequestFields.__struct_encode_fields__)
        if self.method == "GET":
            for name in sorted(self.fields.keys() & _NOT_OF_A_QUERY):
                yield Mistake("fields method", f"fields: {name} is neither a text nor a number, so no query has it")
        yield from self._of_names()

    def _of_names(self) -> Iterator[Mistake]:
        kept = {USER, *(name for name in RequestFields.__struct_encode_fields__ if name not in self.fields)}
        for name, theirs in self.fields.items():
            others = [one for other, one in self.fields.items() if other != name]
            if not theirs:
                yield Mistake("fields", f"fields: the name of {name} is empty")
            elif theirs in others or (theirs in kept and theirs != name):
                yield Mistake("fields", f"fields: {theirs!r} is the name of {name} and of another field")


def page_mistakes(pages: Sequence[PageRules]) -> Iterator[str]:
    """What is wrong between the tables."""
    seen: set[tuple[str, str]] = set()
    for at, page in enumerate(pages):
        if page.path and (page.path, page.method) in seen:
            yield f"pages[{at}]: another page is {page.method} {page.path!r}"
        seen.add((page.path, page.method))


def _fits_a_query(kind: inspect.Type) -> bool:
    kinds = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    return any(isinstance(one, (*_OF_A_QUERY, inspect.LiteralType)) for one in kinds)


def _not_of_a_query() -> frozenset[str]:
    described = inspect.type_info(RequestFields)
    assert isinstance(described, inspect.StructType)
    return frozenset(field.name for field in described.fields if not _fits_a_query(field.type))


_NOT_OF_A_QUERY = _not_of_a_query()
