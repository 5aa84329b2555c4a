"""What a response was created with, as far as its request does not contain it.

It is a header of the request's record, so any gateway finds it as long as `requests` keeps the record. What the request
has is not repeated there: instructions, input, metadata, the format, and the tools unless the body allows only some of
them. The rest is labels and numbers, and bounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from app.gateway.edge.errors import invalid
from app.gateway.openai.responses_body import InputItem, ResponsesBody, TextFormat
from app.gateway.openai.tools import AllowedTools, ChoiceBody, flat, tools_of
from app.wire.codec import HeaderPairs
from app.wire.request import MAX_METADATA_BYTES, Message, Request, Role
from app.wire.response_format import MAX_SCHEMA_BYTES, ResponseFormat

RESPONSE = "response"
"""The header's name."""


class Given(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`body`: without what the request contains, and with the model's name. `has_instructions`: they are the request's
    first message. `developers`: which of the input's messages from system and developer are from a developer.
    """

    body: ResponsesBody
    has_instructions: bool = False
    developers: tuple[bool, ...] = ()

    @property
    def header(self) -> tuple[str, bytes]:
        return RESPONSE, msgspec.json.encode(self)

    def described(self, request: Request) -> dict[str, Any]:
        """The fields of the response that do not change."""
        body = self.body
        form = body.text.format if body.text and body.text.format else _format_of(request.response_format)
        tools = request.tools if body.tools is None else tools_of(body.tools)
        return {
            "id": response_id(request),
            "object": "response",
            "background": bool(body.background),
            "instructions": request.messages[0].content if self.has_instructions and request.messages else None,
            "max_output_tokens": body.max_output_tokens,
            "max_tool_calls": None,
            "metadata": request.metadata or {},
            "model": body.model,
            "parallel_tool_calls": body.parallel_tool_calls is not False,
            "conversation": None if body.conversation is None else {"id": request.conversation_id},
            "previous_response_id": body.previous_response_id,
            "reasoning": {"effort": request.reasoning_effort, "summary": None},
            "service_tier": "default",
            "store": request.store,
            "temperature": 1.0 if body.temperature is None else body.temperature,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "text": {"format": form or {"type": "text"}},
            "tool_choice": _choice(body.tool_choice),
            "tools": flat(tools or ()),
            "top_logprobs": body.top_logprobs or 0,
            "top_p": 1.0 if body.top_p is None else body.top_p,
            "truncation": "disabled",
            "user": body.user,
            "safety_identifier": None,
            "prompt_cache_key": None,
        }

    def input_items(self, request: Request) -> list[dict[str, Any]]:
        """The response's own input, without instructions and earlier turns."""
        messages = (request.messages or ())[1 if self.has_instructions else 0 :]
        developers = iter(self.developers)
        items: list[dict[str, Any]] = []
        for message in messages:
            is_developer = message.role is Role.SYSTEM and next(developers, False)
            for prefix, item in _items(message, is_developer=is_developer):
                name = f"{prefix}_{request.request_id}_in_{len(items)}"
                items.append({"id": name, "status": "completed", **item})
        return items


def given_of(body: ResponsesBody, default_model: str) -> Given:
    """`default_model`: the name that the reply has if the body names none. Raises `ApiError`."""
    items = () if isinstance(body.input, str) else body.input
    developers = _developers(items)
    is_limited = isinstance(body.tool_choice, ChoiceBody) and body.tool_choice.type == "allowed_tools"
    rest = replace(
        body,
        input="",
        instructions=None,
        metadata=None,
        reasoning=None,
        text=None,
        tools=body.tools if is_limited else None,
        model=body.model or default_model,
    )
    _check_size(rest)
    return Given(body=rest, has_instructions=bool(body.instructions), developers=developers if any(developers) else ())


def _check_size(rest: ResponsesBody) -> None:
    sizes = {name: len(msgspec.json.encode(getattr(rest, name))) for name in rest.__struct_fields__}
    if sizes.pop("tools") > MAX_SCHEMA_BYTES:
        raise invalid("tools", f"has more than {MAX_SCHEMA_BYTES} bytes as JSON")
    if sum(sizes.values()) > MAX_METADATA_BYTES:
        largest = max(sizes, key=sizes.__getitem__)
        raise invalid(largest, f"has {sizes[largest]} bytes as JSON; a response repeats at most {MAX_METADATA_BYTES}")


def _format_of(form: ResponseFormat | None) -> TextFormat | None:
    """The format as the body had it."""
    if form is None or form.json_schema is None:
        return None if form is None else TextFormat(type="json_object")
    given = form.json_schema
    return TextFormat(
        type="json_schema", schema_=given.schema_, name=given.name, description=given.description, strict=given.strict
    )


def given_in(headers: HeaderPairs) -> Given | None:
    """What the record of a request says of its response; None if it was not created as one."""
    for name, value in headers:
        if name == RESPONSE and value is not None:
            try:
                return msgspec.json.decode(value, type=Given)
            except msgspec.DecodeError:
                return None
    return None


def response_id(request: Request) -> str:
    if request.conversation_id == request.request_id:
        return f"resp_{request.request_id}"
    return f"resp_{request.conversation_id}.{request.request_id}"


def _developers(items: Sequence[InputItem]) -> tuple[bool, ...]:
    roles = (item.role for item in items if item.type == "message")
    return tuple(role == "developer" for role in roles if role in {"developer", "system"})


def _choice(choice: str | ChoiceBody | None) -> Any:
    if not isinstance(choice, ChoiceBody):
        return choice or "auto"
    if choice.type != "allowed_tools":
        return {"type": "function", "name": choice.function.name if choice.function else choice.name}
    allowed: AllowedTools = choice.allowed_tools or choice
    names = [{"type": "function", "name": tool.tool.function.name} for tool in allowed.tools]
    return {"type": "allowed_tools", "mode": allowed.mode, "tools": names}


def _items(message: Message, *, is_developer: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """The items of one message, with the prefixes of their ids."""
    if message.role is Role.TOOL:
        yield "fco", {"type": "function_call_output", "call_id": message.tool_call_id, "output": message.text}
        return
    if message.role is not Role.ASSISTANT:
        role = "developer" if is_developer else message.role.value
        content = [{"type": "input_text", "text": message.text}]
        yield "msg", {"type": "message", "role": role, "content": content}
        return
    if message.reasoning_content:
        thought = {"type": "reasoning_text", "text": message.reasoning_content}
        yield "rs", {"type": "reasoning", "summary": [], "content": [thought]}
    if message.content is not None or not message.tool_calls:
        part = {"type": "output_text", "text": message.text, "annotations": [], "logprobs": []}
        yield "msg", {"type": "message", "role": "assistant", "content": [part]}
    for call in message.tool_calls or ():
        function = {"name": call.function.name, "arguments": call.function.arguments}
        yield "fc", {"type": "function_call", "call_id": call.id, **function}
