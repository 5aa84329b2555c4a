"""Messages as OpenAI clients send them, in all their forms, as messages of a request."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from app.gateway.edge.errors import invalid
from app.wire.request import Fork, Message, Role
from app.wire.tools import FunctionCall, MessageToolCall

_ROLES = {
    "developer": Role.SYSTEM,
    "system": Role.SYSTEM,
    "user": Role.USER,
    "assistant": Role.ASSISTANT,
    "tool": Role.TOOL,
}
_FEATURES = {
    "image_url": "images",
    "input_image": "images",
    "image": "images",
    "input_audio": "audio",
    "audio_url": "audio",
    "video_url": "videos",
    "file": "files",
    "input_file": "files",
}


class ContentPart(msgspec.Struct, frozen=True):
    """A part of a message's content; only texts are supported."""

    type: str = "text"
    text: str | None = None
    refusal: str | None = None

    @property
    def content(self) -> str:
        if self.type in {"text", "input_text", "output_text", "reasoning_text"} and self.text is not None:
            return self.text
        if self.type == "refusal":
            return self.refusal or ""
        feature = _FEATURES.get(self.type)
        message = f"{feature} are not supported" if feature else f"a part of the type {self.type} is not supported"
        raise invalid("messages", message)


Content = str | tuple[ContentPart | str, ...] | None


def text_of(content: Content) -> str | None:
    """Parts are joined by line breaks, as in vLLM; raises `ApiError` for a part that is not text."""
    if content is None or isinstance(content, str):
        return content
    return "\n".join(part if isinstance(part, str) else part.content for part in content)


Arguments = str | dict[str, Any] | None


def arguments_of(given: Arguments) -> str:
    """The arguments of a call as JSON text; some clients send the object itself."""
    return given or "{}" if given is None or isinstance(given, str) else msgspec.json.encode(given).decode()


class CalledFunction(msgspec.Struct, frozen=True):
    name: str
    arguments: Arguments = None


class CallInMessage(msgspec.Struct, frozen=True):
    id: str
    function: CalledFunction
    type: Literal["function"] = "function"

    @property
    def call(self) -> MessageToolCall:
        return MessageToolCall(self.id, FunctionCall(self.function.name, arguments_of(self.function.arguments)))


def asked_by(fork: Fork | None, messages: tuple[Message, ...]) -> dict[str, Any]:
    """The fields of a request that ask. A fork has its context already, so it brings one message of the user, or, to
    ask a question again, none. Raises `ApiError`.
    """
    if fork is None:
        return {"messages": messages}
    asked = [message for message in messages if message.role is not Role.USER or message.text]
    if len(asked) > 1 or any(message.role is not Role.USER for message in asked):
        raise invalid("messages", "from brings the context, so send one message of the user, or none to ask again")
    return {"fork": fork, **({"prompt": asked[0].text} if asked else {})}


class OpenAIMessage(msgspec.Struct, frozen=True):
    role: Literal["developer", "system", "user", "assistant", "tool"]
    content: Content = None
    refusal: str | None = None
    tool_calls: tuple[CallInMessage, ...] | None = None
    tool_call_id: str | None = None
    name: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    function_call: Any = None

    def message(self) -> Message:
        """Raises `ApiError`."""
        if self.function_call is not None:
            raise invalid("messages", "function_call is not supported; use tool_calls")
        return Message(
            _ROLES[self.role],
            text_of(self.content) or self.refusal or ("" if not self.tool_calls else None),
            tool_calls=tuple(one.call for one in self.tool_calls) if self.tool_calls else None,
            tool_call_id=self.tool_call_id,
            name=self.name,
            reasoning_content=self.reasoning_content or self.reasoning,
        )
