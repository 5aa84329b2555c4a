"""Codes of the errors that a reader of `tokens` or a client of the gateway can meet.

A code is part of the contract, its message is for people and may change.
"""

from __future__ import annotations

import enum


class ErrorCode(enum.StrEnum):
    INVALID_REQUEST = "invalid_request"
    PROMPT_TOO_LONG = "prompt_too_long"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    MODEL_NOT_FOUND = "model_not_found"
    OVERLOADED = "overloaded"
    ENGINE_ERROR = "engine_error"
    NOT_FOUND = "not_found"
    UNAUTHORIZED = "unauthorized"
    RATE_LIMITED = "rate_limited"
    UNAVAILABLE = "unavailable"


MEANING: dict[ErrorCode, str] = {
    ErrorCode.INVALID_REQUEST: "The record breaks the contract; the message names the field.",
    ErrorCode.PROMPT_TOO_LONG: "The prompt is over `PARLEY_MAX_PROMPT_BYTES` or over the model's context.",
    ErrorCode.DEADLINE_EXCEEDED: "`deadline_ms` had passed before the answer could begin.",
    ErrorCode.MODEL_NOT_FOUND: "The request names a `model` that no worker serves, or an adapter that does not fit.",
    ErrorCode.OVERLOADED: "The engine has no room for this request; ask again later with a new `request_id`.",
    ErrorCode.ENGINE_ERROR: "The model failed on this request; ask again with a new `request_id`.",
    ErrorCode.NOT_FOUND: "The gateway has not seen this `request_id` within its waiting time.",
    ErrorCode.UNAUTHORIZED: "The gateway does not know the API key or token.",
    ErrorCode.RATE_LIMITED: "This user or tenant has used up its share; ask again after `Retry-After`.",
    ErrorCode.UNAVAILABLE: "A part that the gateway needs cannot be reached now; ask again later.",
}
"""One sentence for each code; the README's table is made from it."""
