"""Error codes that a reader of `tokens` or a client of the gateway can see.

A code is part of the contract. Its message is for people and may change.
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
    ErrorCode.INVALID_REQUEST: "The record violates the contract; the message names the field.",
    ErrorCode.PROMPT_TOO_LONG: "The prompt exceeds `PARLEY_MAX_PROMPT_BYTES` or the model's context length, "
    "or the turn with its calls and results exceeds what a record can hold.",
    ErrorCode.DEADLINE_EXCEEDED: "`deadline_ms` passed before the answer began.",
    ErrorCode.MODEL_NOT_FOUND: "The request names a `model` that no worker serves, or an adapter that does not fit.",
    ErrorCode.OVERLOADED: "The engine has no room for this request; retry later with a new `request_id`.",
    ErrorCode.ENGINE_ERROR: "The model failed on this request; retry with a new `request_id`.",
    ErrorCode.NOT_FOUND: "The gateway has not seen this `request_id` within its waiting time.",
    ErrorCode.UNAUTHORIZED: "The API key or token is unknown to the gateway.",
    ErrorCode.RATE_LIMITED: "This user or tenant has used up its limit; retry after `Retry-After`.",
    ErrorCode.UNAVAILABLE: "A service that the gateway needs cannot be reached now; retry later.",
}
"""One sentence per code; the README's table is generated from it."""
