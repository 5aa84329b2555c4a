"""What the OpenAPI document says of replies: routes make their own, and FastAPI sees nothing of them."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

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
    400: "The request breaks the contract; `param` names the field.",
    401: "No key, or one that is not known.",
    403: "The key is not that user's.",
    404: "Nothing of this name is there.",
    413: "The body is too large.",
    415: "The body is not `application/json`.",
    429: "The user or the tenant has used up its share; see `Retry-After`.",
    500: "The model failed.",
    503: "It cannot be done now; see `Retry-After`.",
    504: "The deadline has passed.",
}
_OF_ALL = (400, 401, 403, 429, 503)
_EVENT = {"type": "object", "required": ["data"], "properties": {"id": _TEXT, "data": _TEXT}}
EVENTS = {"text/event-stream": {"schema": _EVENT}}


def shape(**fields: str | list[str]) -> dict[str, Any]:
    """The JSON of an object that has these fields, by their JSON types."""
    properties = {name: {"type": kind} for name, kind in fields.items()}
    return {"application/json": {"schema": {"type": "object", "required": [*fields], "properties": properties}}}


def replies(content: dict[str, Any], *refusals: int, status: int = 200) -> Replies:
    """The reply of a route, and how it refuses beside what all routes of users do."""
    told: Replies = {status: {"description": "Done.", "content": content}}
    for code in (*_OF_ALL, *refusals):
        told[code] = {"description": _WHY[code], "content": {"application/json": {"schema": _REFUSAL}}}
    return told


def document(application: FastAPI) -> None:
    """Say how one identifies oneself, and leave out FastAPI's own form of a refusal, which is never sent."""
    generate = application.openapi

    def openapi() -> dict[str, Any]:
        if application.openapi_schema is None:
            schema = generate()
            for operations in schema["paths"].values():
                for operation in operations.values():
                    operation["responses"].pop("422", None)
            parts = schema.setdefault("components", {})
            parts.pop("schemas", None)
            parts["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
            schema["security"] = [{"key": []}, {}]
            application.openapi_schema = schema
        return application.openapi_schema or {}

    application.openapi = openapi  # type: ignore[method-assign]
