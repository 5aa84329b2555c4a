"""The body of `POST /v1/responses`, as OpenAI clients send it.

A response is a turn of a conversation that begins with the first response of its chain. Its id contains both:
`resp_REQUEST`, or `resp_CONVERSATION.REQUEST` for a response that continues another. No gateway has to remember it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from app.gateway.callers.identity import Identity
from app.gateway.edge.errors import ApiError, invalid, renamed
from app.gateway.openai.messages import Arguments, Content, OpenAIMessage, arguments_of, asked_by, text_of
from app.gateway.openai.sampling_body import REST_OF_CONTEXT, limit_of
from app.gateway.openai.tools import ChoiceBody, ToolBody, allowed_of
from app.wire.ids import is_conversation_id, is_request_id, new_request_id
from app.wire.request import Fork, Message, Request, Role, WhileBusy
from app.wire.response_format import FormatType, JsonSchema, ResponseFormat
from app.wire.tools import FunctionCall, MessageToolCall, ToolMode

_PREFIX = "resp_"
_LOGPROBS = "message.output_text.logprobs"
_NAMES = {
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "response_format": "text",
    "reasoning_effort": "reasoning",
    "conversation_id": "conversation",
}
"""How this API names fields of a request."""


class TextFormat(msgspec.Struct, frozen=True, kw_only=True):
    type: Literal["text", "json_object", "json_schema"] = "text"
    schema_: dict[str, Any] | None = msgspec.field(default=None, name="schema")
    name: str | None = None
    description: str | None = None
    strict: bool | None = None

    @property
    def response_format(self) -> ResponseFormat | None:
        """Raises `ApiError`."""
        if self.type == "json_object" and not self.schema_:
            return ResponseFormat(type=FormatType.JSON_OBJECT)
        if self.type == "text":
            return None
        if self.schema_ is None:
            raise invalid("text", "a format of the type json_schema needs schema")
        schema = JsonSchema(schema_=self.schema_, name=self.name, description=self.description, strict=self.strict)
        return ResponseFormat(type=FormatType.JSON_SCHEMA, json_schema=schema)


class TextConfig(msgspec.Struct, frozen=True):
    format: TextFormat | None = None
    verbosity: Literal["medium"] | None = None


class InputItem(msgspec.Struct, frozen=True, kw_only=True):
    """A message, a call of an earlier response, the result of one, or a reference to an item by its `id`."""

    type: str = "message"
    id: str | None = None
    role: Literal["developer", "system", "user", "assistant"] | None = None
    content: Content = None
    call_id: str | None = None
    name: str | None = None
    arguments: Arguments = None
    output: Content = None

    @property
    def is_reference(self) -> bool:
        """OpenAI's type of a reference may be null."""
        is_bare = self.id is not None and self.role is None and self.content is None
        return self.type == "item_reference" or (self.type == "message" and is_bare)


class ReasoningConfig(msgspec.Struct, frozen=True, omit_defaults=True):
    """The reasoning is given whole, whatever `summary` asks for."""

    effort: str | None = None
    summary: str | None = None


class ConversationName(msgspec.Struct, frozen=True):
    id: str


class ResponsesBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    input: str | tuple[InputItem, ...]
    model: str | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation: str | ConversationName | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_logprobs: int | None = None
    include: tuple[str, ...] | None = None
    tools: tuple[ToolBody, ...] | None = None
    tool_choice: str | ChoiceBody | None = None
    parallel_tool_calls: bool | None = None
    tool_mode: ToolMode = ToolMode.CLIENT
    tool_timeout_ms: int | None = None
    not_before: int | None = None
    while_busy: WhileBusy = WhileBusy.QUEUE
    replaces: tuple[str, ...] = ()
    fork: Fork | None = msgspec.field(default=None, name="from")
    text: TextConfig | None = None
    reasoning: ReasoningConfig | None = None
    stream: bool | None = None
    background: bool | None = None
    store: bool | None = None
    metadata: dict[str, Any] | None = None
    user: str | None = None
    user_id: str | None = None

    @property
    def messages(self) -> tuple[Message, ...]:
        """Raises `ApiError`."""
        instructions = [Message(Role.SYSTEM, self.instructions)] if self.instructions else []
        if isinstance(self.input, str):
            return (*instructions, Message(Role.USER, self.input))
        return (*instructions, *_messages(self.input))

    def in_callers_words(self, error: ApiError) -> ApiError:
        """The error in the words of this API."""
        if error.param == "previous_request_id":
            reason = "it is unknown or not kept, or it failed, or was cancelled before its first token"
            return invalid("previous_response_id", f"names no response that can be continued: {reason}")
        return renamed(error, _NAMES)

    def request(self, identity: Identity, *, store: bool = True) -> Request:
        """`store` applies if the body has none. Raises `ApiError`."""
        if self.background and self.store is False:
            raise invalid("background", "excludes store false: the response could not be retrieved")
        request_id = new_request_id()
        conversation, previous = self._conversation()
        tools, choice = allowed_of(self.tools, self.tool_choice)
        logprobs = _LOGPROBS in (self.include or ())
        return Request(
            request_id=request_id,
            user_id=identity.user_id,
            tenant=identity.tenant,
            conversation_id=conversation or request_id,
            previous_request_id=previous,
            **asked_by(self.fork, self.messages),
            keep_context=self.fork is None,
            continue_conversation=self.fork is None and self.conversation is not None,
            model=self.model,
            max_tokens=limit_of(self.max_output_tokens, unset=REST_OF_CONTEXT),
            temperature=self.temperature,
            top_p=self.top_p,
            logprobs=logprobs or None,
            top_logprobs=self.top_logprobs if logprobs else None,
            tools=tools,
            tool_choice=choice,
            parallel_tool_calls=self.parallel_tool_calls if tools else None,
            tool_mode=self.tool_mode,
            tool_timeout_ms=self.tool_timeout_ms,
            not_before=self.not_before,
            while_busy=self.while_busy,
            replaces=self.replaces,
            reasoning_effort=self.reasoning.effort if self.reasoning else None,
            response_format=self.text.format.response_format if self.text and self.text.format else None,
            metadata=self.metadata,
            store=store if self.store is None else self.store,
        )

    def _conversation(self) -> tuple[str | None, str | None]:
        """The conversation, and the request that this one continues."""
        if self.previous_response_id is None:
            return (
                self.conversation.id if isinstance(self.conversation, ConversationName) else self.conversation
            ), None
        if self.conversation is not None:
            raise invalid("previous_response_id", "excludes conversation")
        named = named_by(self.previous_response_id)
        if named is None:
            raise invalid("previous_response_id", "is not the id of a response")
        return named


def named_by(response_id: str) -> tuple[str, str] | None:
    """The conversation and the request in the id of a response; None if it is none."""
    conversation, dot, request = response_id.removeprefix(_PREFIX).rpartition(".")
    if not response_id.startswith(_PREFIX) or not is_request_id(request) or not is_conversation_id(conversation):
        return None
    return (conversation if dot else request), request


class _Messages:
    """Items that follow each other as one message of the assistant: its reasoning, its text and its calls."""

    def __init__(self) -> None:
        self.all: list[Message] = []
        self._calls: list[MessageToolCall] = []
        self._reasoning: str | None = None

    def add(self, item: InputItem) -> None:
        if item.type == "function_call" and item.call_id and item.name:
            self._calls.append(MessageToolCall(item.call_id, FunctionCall(item.name, arguments_of(item.arguments))))
            return
        self.end()
        if item.type == "message" and item.role is not None:
            message = OpenAIMessage(item.role, item.content).message()
            reasoning = self._reasoning if message.role is Role.ASSISTANT else None
            self.all.append(msgspec.structs.replace(message, reasoning_content=reasoning))
        elif item.type == "function_call_output" and item.call_id:
            self.all.append(Message(Role.TOOL, text_of(item.output) or "", tool_call_id=item.call_id))
        elif item.type != "reasoning":
            raise invalid("input", f"an item of the type {item.type} is not supported, or lacks a field")
        self._reasoning = text_of(item.content) if item.type == "reasoning" else None

    def end(self) -> None:
        """What follows is no part of the same message."""
        if not self._calls:
            return
        calls, self._calls = tuple(self._calls), []
        if self.all and self.all[-1].role is Role.ASSISTANT and self._reasoning is None:
            self.all[-1] = msgspec.structs.replace(self.all[-1], tool_calls=(*(self.all[-1].tool_calls or ()), *calls))
        else:
            self.all.append(Message(Role.ASSISTANT, tool_calls=calls, reasoning_content=self._reasoning))


def _messages(items: Sequence[InputItem]) -> list[Message]:
    messages = _Messages()
    for item in items:
        messages.add(item)
    messages.end()
    return messages.all
