"""What is wrong with a record, and what could still be read of it."""

from __future__ import annotations

from app.wire.codes import ErrorCode
from app.wire.limits import shortened
from app.wire.request import DEFAULT_CONVERSATION


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
