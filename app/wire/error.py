"""What is wrong with a record, and what could still be read of it.

A code is part of the contract: readers of `tokens` and clients of the gateway see it. Its message is for people and may
change.
"""

from __future__ import annotations

import enum

from app.wire.request import DEFAULT_CONVERSATION

MAX_MESSAGE_LENGTH = 1000
"""Characters of an error's message: it may quote invalid input, which may be a megabyte."""


def shortened(message: str) -> str:
    """The message of an error, cut to `MAX_MESSAGE_LENGTH`."""
    return message if len(message) <= MAX_MESSAGE_LENGTH else f"{message[: MAX_MESSAGE_LENGTH - 3]}..."


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
    WAITING = "waiting"
    CONVERSATION_BUSY = "conversation_busy"


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
    ErrorCode.WAITING: "The answer waits, and goes on; read it at `Location`. To ask again would ask twice.",
    ErrorCode.CONVERSATION_BUSY: "The request has `while_busy` `reject`, and an earlier one of its conversation is "
    "not over.",
}
"""One sentence per code; the table in docs/errors.md has the same."""


class WireError(Exception):
    """A record that violates the contract.

    `request_id` is set if the record has a valid one, even if nothing else of it can be used: its sender can then get
    an `error` event.
    """

    def __init__(
        self,
        code: ErrorCode,
        message: str,
        *,
        request_id: str | None = None,
        user_id: str | None = None,
        conversation_id: str = DEFAULT_CONVERSATION,
    ) -> None:
        message = shortened(message)
        super().__init__(message)
        self.code = code
        self.message = message
        self.request_id = request_id
        self.user_id = user_id
        self.conversation_id = conversation_id

    @property
    def dead_letter(self) -> bool:
        """Whether the record goes to `dead-letters`; a prompt that is only too long is a valid record."""
        return self.code is ErrorCode.INVALID_REQUEST

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"
