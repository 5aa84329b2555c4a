"""The OpenAPI description of replies: routes build their own, so FastAPI does not see them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from fastapi import FastAPI, Request, Response

Replies = dict[int | str, dict[str, Any]]

_TEXT: dict[str, Any] = {"type": "string"}
_MAYBE_TEXT: dict[str, Any] = {"type": ["string", "null"]}
_REFUSAL = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {"message": _TEXT, "type": _TEXT, "param": _MAYBE_TEXT, "code": _TEXT},
        }
    },
}
_WHY = {
    400: "The request violates the contract; `param` names the field.",
    401: "The key is missing or unknown.",
    403: "The key belongs to another user.",
    404: "It does not exist.",
    409: "The answer waits, and goes on.",
    413: "The body is too large.",
    415: "The body is not `application/json`.",
    422: "The arguments do not follow the tool's schema.",
    429: "The user or tenant has used up its limit; see `Retry-After`.",
    500: "The model failed.",
    503: "A service is unavailable; see `Retry-After`.",
    504: "The deadline has passed.",
}
_OF_ALL = (400, 401, 403, 429, 503)
_EVENT = {"type": "object", "required": ["data"], "properties": {"id": _TEXT, "data": _TEXT}}
EVENTS = {"text/event-stream": {"schema": _EVENT}}
TEXT = {"text/plain": {"schema": _TEXT}}


def shape(**fields: str | list[str]) -> dict[str, Any]:
    """The schema of an object with these fields, given by their JSON types."""
    properties = {name: {"type": kind} for name, kind in fields.items()}
    return {"application/json": {"schema": {"type": "object", "required": [*fields], "properties": properties}}}


def replies(content: dict[str, Any], *refusals: int, status: int = 200) -> Replies:
    """The replies of a route: its own, and the errors that all user routes share."""
    replies: Replies = {status: {"description": "Done.", "content": content}}
    for code in (*_OF_ALL, *refusals):
        replies[code] = {"description": _WHY[code], "content": {"application/json": {"schema": _REFUSAL}}}
    return replies


def schema_of(record_type: type) -> dict[str, object]:
    """The body's schema for the OpenAPI document."""
    (schema,), parts = msgspec.json.schema_components([record_type], ref_template="#/components/schemas/{name}")
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": _inlined(schema, parts)}}}}


def _inlined(schema: object, parts: dict[str, object]) -> object:
    """Replace references by their targets: FastAPI does not know these types."""
    if isinstance(schema, dict):
        if reference := schema.get("$ref"):
            return _inlined(parts[reference.rpartition("/")[2]], parts)
        return {name: _inlined(value, parts) for name, value in schema.items()}
    return [_inlined(one, parts) for one in schema] if isinstance(schema, list) else schema


def document(application: FastAPI, pages: Callable[[], dict[str, Any]]) -> None:
    """Describe authentication, and remove FastAPI's own form of validation errors, which is never sent.

    `/openapi.json` needs no key, so its 100 KB are written once, and once more when the policy has other `pages`.
    """
    generate = application.openapi

    def openapi() -> dict[str, Any]:
        if application.openapi_schema is None:
            schema = generate()
            for operations in schema["paths"].values():
                for operation in operations.values():
                    if operation["responses"].get("422", {}).get("description") != _WHY[422]:
                        operation["responses"].pop("422", None)
            parts = schema.setdefault("components", {})
            parts.pop("schemas", None)
            parts["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
            schema["security"] = [{"key": []}, {}]
            application.openapi_schema = schema
        return application.openapi_schema or {}

    known: dict[str, Any] = {}
    written = b""

    async def reply(_: Request) -> Response:
        nonlocal known, written
        if not written or known is not pages():
            known, whole = pages(), openapi()
            written = msgspec.json.encode({**whole, "paths": {**whole["paths"], **known}})
        return Response(written, media_type="application/json")

    application.openapi = openapi  # type: ignore[method-assign]
    application.add_route("/openapi.json", reply, include_in_schema=False)
