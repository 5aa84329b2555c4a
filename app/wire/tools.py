"""Tools of a request, and the calls of them in messages and answers, as OpenAI's chat completions have them."""

from __future__ import annotations

import enum
from typing import Any, Literal

import msgspec

from models.interface.chat import ModelCall

MAX_TOOLS = 128
MAX_TOOL_CALLS = 128
MAX_TOOL_TIMEOUT_MS = 30 * 86_400_000
MAX_OPEN_MS = 3_600_000
"""How long an answer waits that does not sleep."""
TOOL_TIMEOUT_MS = 60_000  # of requests that name none
TOOL_ROUNDS = 8
"""How often one answer may call tools over Kafka."""


class Function(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`parameters` is the JSON schema of the arguments. A call conforms to it, unless the schema cannot be followed: a
    call may then have any object, and with `strict` the request is refused.
    """

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ToolField(msgspec.Struct, frozen=True, kw_only=True):
    function: Function
    type: Literal["function"] = "function"


class FunctionName(msgspec.Struct, frozen=True):
    name: str


class NamedTool(msgspec.Struct, frozen=True):
    """A `tool_choice` that demands one tool."""

    function: FunctionName
    type: Literal["function"] = "function"


ToolChoice = Literal["none", "auto", "required"] | NamedTool


class ToolMode(enum.StrEnum):
    """Who runs the tools that an answer calls.

    client: The client. The answer ends with its calls, and another request has their results.
    kafka: A consumer of `tool-calls`. The same answer goes on with their results, which arrive on `tool-results`.
    """

    CLIENT = "client"
    KAFKA = "kafka"


class FunctionCall(msgspec.Struct, frozen=True):
    """`arguments` is JSON text."""

    name: str
    arguments: str = "{}"


class MessageToolCall(msgspec.Struct, frozen=True):
    """A call in an assistant's message of `messages`."""

    id: str
    function: FunctionCall
    type: Literal["function"] = "function"

    @property
    def call(self) -> ModelCall:
        return ModelCall(self.function.name, self.function.arguments, self.id)


class ToolResult(msgspec.Struct, frozen=True):
    """The result of a call of the conversation's last turn."""

    tool_call_id: str
    content: str


class ToolCall(msgspec.Struct, frozen=True):
    """A complete call of an answer; `arguments` is JSON text that conforms to the tool's schema."""

    id: str
    name: str
    arguments: str


class ToolCallDelta(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an event adds to call `index` of its answer: `id` and `name` at its beginning, then its `arguments`."""

    index: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""
