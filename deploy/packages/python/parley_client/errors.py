"""What can go wrong for a caller."""

from __future__ import annotations


class ParleyError(Exception):
    """Any error of this package."""


class RefusedError(ParleyError):
    """The gateway refuses the call: `status` of HTTP, `code` and `param` as in OpenAI's API."""

    def __init__(self, status: int, code: str, message: str, param: str | None = None) -> None:
        super().__init__(f"{code}: {message}")
        self.status = status
        self.code = code
        self.param = param


class AnswerFailedError(ParleyError):
    """The answer has ended with an `error` event; what it has until then stays in the answer."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class UnreachableError(ParleyError):
    """Nothing was heard for as long as the client is patient. The answer may go on: follow its request id later."""
