"""Validation beyond types: sizes, ranges, and that key and record name the same user."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from app.wire import json_codec
from app.wire.codec import PROMPTS, decode
from app.wire.control import MAX_ARGUMENTS_BYTES, Audit, Cancel, Control, Decide, Erase, EraseConversation, Expire
from app.wire.error import ErrorCode, WireError
from app.wire.ids import (
    MAX_USER_LENGTH,
    REQUEST_ID_FORM,
    is_conversation_id,
    is_request_id,
    is_tool_name,
    is_user_id,
    partition_for,
    tenant_of,
)
from app.wire.json_codec import MalformedError, check_depth, check_digits, json_bytes
from app.wire.record_size import MAX_QUESTION_BYTES
from app.wire.request import (
    DEFAULT_CONVERSATION,
    MAX_METADATA_BYTES,
    MAX_TEMPLATE_VALUES_BYTES,
    Fork,
    Message,
    Request,
    Role,
)
from app.wire.response_format import (
    MAX_SCHEMA_BYTES,
    FormatType,
    ResponseFormat,
)
from app.wire.tool_records import ToolResultRecord
from app.wire.tools import NamedTool, ToolField, ToolMode
from models.interface.unexpected import type_and_line

log = logging.getLogger(__name__)


class _WrongError(ValueError):
    pass


def validate_request(request: Request, key: bytes | None, *, max_prompt_bytes: int) -> None:
    """Raise `WireError` unless `request`, read with `key`, satisfies the contract."""
    with _refusing(request):
        _check_identity(request.request_id, request.user_id, key)
        _check_names(request)
        _check_prompt(request)
        if request.fork is not None:
            _check_fork(request, request.fork)
        _check_tools(request)
        if request.agent is not None:
            _check_agent(request)
        _check_metadata(request)
        _check_template_values(request)
        if request.response_format is not None:
            _check_format(request.response_format)
        _check_size(request, max_prompt_bytes)


def validate_made(request: Request, *, max_prompt_bytes: int) -> None:
    """Raise `WireError` unless a request that was made here would be taken: its types check only what is decoded."""
    decode(Request, json_codec.encode(request))
    validate_request(request, request.user_id.encode(), max_prompt_bytes=max_prompt_bytes)


def _check_size(request: Request, max_prompt_bytes: int) -> None:
    size = prompt_bytes(request)
    if size > max_prompt_bytes:
        message = f"the prompt has {size} bytes, the limit is {max_prompt_bytes}"
        raise _refused(request, message, ErrorCode.PROMPT_TOO_LONG)
    # A JSON escape takes at most six bytes for one.
    if 6 * size > MAX_QUESTION_BYTES and (stored := json_bytes(request.question)) > MAX_QUESTION_BYTES:
        message = f"the prompt has {stored} bytes as JSON, a record on `turns` has room for {MAX_QUESTION_BYTES}"
        raise _refused(request, message, ErrorCode.PROMPT_TOO_LONG)


def check_partition(record: Request | Control | ToolResultRecord, partition: int, partitions: int) -> None:
    """Raise `WireError` unless the record is in the partition that Kafka's default partitioner chooses for its user.

    In another partition it would be handled by a worker without the user's history; order, cancels and erasures of the
    user would not apply to it.
    """
    right = partition_for(record.user_id, partitions)
    if partition == right:
        return
    message = (
        f"key: the record is in partition {partition}, and murmur2 of its key gives {right} of {partitions}; set the "
        "producer's partitioner to murmur2 (librdkafka and its clients: partitioner=murmur2_random)"
    )
    request_id = None if isinstance(record, Erase | EraseConversation | Audit) else record.request_id
    conversation = record.conversation_id if isinstance(record, Request) else DEFAULT_CONVERSATION
    raise WireError(
        ErrorCode.INVALID_REQUEST,
        message,
        request_id=request_id,
        user_id=record.user_id,
        conversation_id=conversation,
    )


def validate_control(control: Control, key: bytes | None) -> None:
    """Raise `WireError` unless `control`, read with `key`, satisfies the contract."""
    with _refusing(control):
        request_id = control.request_id if isinstance(control, Cancel | Decide | Expire) else None
        _check_identity(request_id, control.user_id, key)
        if isinstance(control, Decide):
            _check_decision(control)


def _check_decision(control: Decide) -> None:
    desk, _, name = control.by.partition("/")
    if not (desk and name):
        raise _WrongError("by: must be DESK/NAME")
    if (control.arguments is not None) != (control.decision == "edited"):
        raise _WrongError("arguments: belong to the decision edited, and to no other")
    if control.reason is not None and control.decision != "rejected":
        raise _WrongError("reason: belongs to the decision rejected")
    if control.arguments is not None:
        _check_json("arguments:", control.arguments.encode(), MAX_ARGUMENTS_BYTES)


def validate_tool_result(result: ToolResultRecord, key: bytes | None) -> None:
    """Raise `WireError` unless `result`, read with `key`, satisfies the contract."""
    with _refusing(result):
        _check_identity(result.request_id, result.user_id, key)


def foreign_tenant(request: Request) -> str | None:
    """What is wrong with the request's `tenant` if its user belongs to another one."""
    own = tenant_of(request.user_id)
    if own is None or not request.tenant or request.tenant == own:
        return None
    return f"tenant: is {request.tenant!r}, and the user {request.user_id!r} belongs to {own!r}"


def charged_tenant(request: Request) -> str:
    """Whose request this is; empty without a tenant. That of the user counts, and `tenant` for users without one."""
    return tenant_of(request.user_id) or request.tenant or ""


def with_tenant(request: Request) -> Request:
    """The request as all parts behind its decoding see it: `tenant` is the one that it counts for."""
    return msgspec.structs.replace(request, tenant=charged_tenant(request) or None)


def prompt_bytes(request: Request) -> int:
    """Bytes of everything that the prompt is built from."""
    messages = request.messages or ()
    texts = [request.prompt or "", *(message.text for message in messages)]
    others = ((one.name, one.tool_call_id, one.reasoning_content) for one in messages)
    texts += [text for texts_of_one in others for text in texts_of_one if text]
    calls = [call for message in messages for call in message.tool_calls or ()]
    texts += [text for call in calls for text in (call.function.arguments, call.function.name, call.id)]
    texts += [text for result in request.tool_results or () for text in (result.content, result.tool_call_id)]
    tools = len(msgspec.json.encode(request.tools)) if request.tools else 0
    ids = len(request.prompt_token_ids or ())
    if request.fork is not None:
        texts, ids = [*texts, request.fork.text or ""], ids + len(request.fork.tokens or ())
    return sum(len(text.encode()) for text in texts) + 4 * ids + tools


@contextmanager
def _refusing(record: Request | Control | ToolResultRecord) -> Iterator[None]:
    """Turn what a check raises into `WireError`, also the unforeseen: it is about this record alone."""
    try:
        yield
    except WireError:
        raise
    except (_WrongError, MalformedError) as error:
        raise _refused(record, str(error)) from None
    except Exception as error:
        log.warning("a record cannot be checked: %s", type_and_line(error))
        raise _refused(record, "the record cannot be checked") from error


def _refused(
    record: Request | Control | ToolResultRecord, message: str, code: ErrorCode = ErrorCode.INVALID_REQUEST
) -> WireError:
    request_id = record.request_id if isinstance(record, Request) else None
    conversation_id = record.conversation_id if isinstance(record, Request) else None
    return WireError(
        code,
        message,
        request_id=request_id if is_request_id(request_id) else None,
        user_id=record.user_id if is_user_id(record.user_id) else None,
        conversation_id=conversation_id if is_conversation_id(conversation_id) else DEFAULT_CONVERSATION,
    )


def _check_identity(request_id: str | None, user_id: str, key: bytes | None) -> None:
    if request_id is not None and not is_request_id(request_id):
        raise _WrongError(f"request_id: must be {REQUEST_ID_FORM}")
    if not is_user_id(user_id):
        raise _WrongError(f"user_id: must have 1-{MAX_USER_LENGTH} characters")
    if key is None:
        raise _WrongError("key: is missing; it must be the user_id")
    if key != user_id.encode():
        raise _WrongError("key: is not the user_id")


def _check_names(request: Request) -> None:
    if request.previous_request_id is not None and not is_request_id(request.previous_request_id):
        raise _WrongError(f"previous_request_id: must be {REQUEST_ID_FORM}")
    if not all(is_request_id(one) and one != request.request_id for one in request.replaces):
        raise _WrongError(f"replaces: must be ids of other requests, each {REQUEST_ID_FORM}")
    if (foreign := foreign_tenant(request)) is not None:
        raise _WrongError(foreign)


def _check_prompt(request: Request) -> None:
    given = [name for name in PROMPTS if getattr(request, name) is not None]
    if not given and request.fork is not None and request.fork.index is not None:
        return
    if len(given) != 1:
        raise _WrongError(f"exactly one of {' and '.join(PROMPTS[:2])} must be given (or {' or '.join(PROMPTS[2:])})")
    if not getattr(request, given[0]):
        raise _WrongError(f"{given[0]}: is empty")
    if request.raw and request.prompt is None:
        raise _WrongError("raw: needs prompt")
    if request.is_raw and request.recall:
        raise _WrongError("recall: needs a chat template, which a raw prompt does not use")
    if request.continue_final_message and not _ends_with_assistant(request.messages):
        raise _WrongError("continue_final_message: the last message must be the assistant's and have content")
    if request.messages is not None:
        _check_messages(request.messages)


_NOT_OF_FORKS = ("previous_request_id", "continue_conversation", "continue_final_message", "keep_context", "raw")


def _check_fork(request: Request, fork: Fork) -> None:
    if not is_request_id(fork.request_id):
        raise _WrongError(f"from.request_id: must be {REQUEST_ID_FORM}")
    if fork.conversation_id == request.conversation_id:
        raise _WrongError("from: begins a conversation, so conversation_id must be another one than from's")
    for name in (*PROMPTS[1:], *_NOT_OF_FORKS):
        if getattr(request, name):
            raise _WrongError(f"from: excludes {name}")
    if fork.index is None:
        if fork.tokens or fork.text:
            raise _WrongError("from.tokens: need from.index, and so does from.text")
        return
    if len(fork.tokens or ()) != fork.index:
        raise _WrongError(f"from.tokens: has {len(fork.tokens or ())} ids, and from.index is {fork.index}")
    if fork.text and not fork.index:
        raise _WrongError("from.text: needs from.tokens")
    if fork.index and ((request.best_of or 1) > 1 or request.prompt_logprobs is not None):
        raise _WrongError("from.index: excludes best_of and prompt_logprobs where the answer has a beginning")
    if request.max_tokens is not None and fork.index > request.max_tokens:
        raise _WrongError(f"from.index: is above max_tokens, which is {request.max_tokens} and counts them")


def _ends_with_assistant(messages: tuple[Message, ...] | None) -> bool:
    return bool(messages and messages[-1].role is Role.ASSISTANT and messages[-1].content)


def _check_messages(messages: tuple[Message, ...]) -> None:
    for message in messages:
        for name in ("tool_calls", "reasoning_content"):
            if getattr(message, name) and message.role is not Role.ASSISTANT:
                raise _WrongError(f"messages: only the assistant's may have {name}")
        if message.role is Role.TOOL and not message.tool_call_id:
            raise _WrongError("messages: one of the role tool needs tool_call_id")
        for call in message.tool_calls or ():
            _check_json("messages: the arguments of a call", call.function.arguments.encode())


def _check_tools(request: Request) -> None:
    tools = request.tools or ()
    names = [tool.function.name for tool in tools]
    for tool in tools:
        _check_tool(tool)
    if len(set(names)) < len(names):
        raise _WrongError("tools: two have the same name")
    choice = request.tool_choice
    if not tools and (choice == "required" or isinstance(choice, NamedTool)):
        raise _WrongError("tool_choice: needs tools")
    if isinstance(choice, NamedTool) and choice.function.name not in names:
        raise _WrongError(f"tool_choice: no tool has the name {choice.function.name}")
    if request.tool_mode is ToolMode.KAFKA and not tools:
        raise _WrongError("tool_mode: kafka needs tools")
    if request.tool_mode is ToolMode.KAFKA and (request.best_of or 1) > 1:
        raise _WrongError("best_of: excludes tool_mode kafka")
    if request.tool_mode is ToolMode.KAFKA and request.continue_final_message:
        raise _WrongError("continue_final_message: excludes tool_mode kafka")
    if tools and request.is_raw:
        raise _WrongError("tools: need a chat template, which a raw prompt does not use")


def _check_agent(request: Request) -> None:
    """The instructions, the model and the tools are the agent's, so nothing may bring or reveal others."""
    others = ("tools", "model", "tool_results", "raw", "prompt_token_ids", "prompt_logprobs", "continue_final_message")
    given = [name for name in others if (value := getattr(request, name)) is not None and value is not False]
    given += ["best_of"] if (request.best_of or 1) > 1 else []
    if any(message.role is Role.SYSTEM for message in request.messages or ()):
        given.append("a system message")
    if given:
        raise _WrongError(f"agent: excludes {', '.join(given)}")


def _check_tool(tool: ToolField) -> None:
    function = tool.function
    if not is_tool_name(function.name):
        raise _WrongError("tools: a name must be 1-64 of A-Z a-z 0-9 _ . -")
    _check_json(f"tools: {function.name}", msgspec.json.encode(function), MAX_SCHEMA_BYTES)
    if (function.parameters or {}).get("type", "object") != "object":
        raise _WrongError(f"tools: the parameters of {function.name} must be a schema of the type object")


def _check_metadata(request: Request) -> None:
    if request.metadata is not None:
        _check_json("metadata:", msgspec.json.encode(request.metadata), MAX_METADATA_BYTES)


def _check_template_values(request: Request) -> None:
    """The template of a model decides what they mean."""
    if request.chat_template_kwargs is not None:
        size = len(msgspec.json.encode(request.chat_template_kwargs))
        if size > MAX_TEMPLATE_VALUES_BYTES:
            raise _WrongError(f"chat_template_kwargs: has more than {MAX_TEMPLATE_VALUES_BYTES} bytes as JSON")
    if request.is_raw and (request.reasoning_effort or request.chat_template_kwargs):
        name = "reasoning_effort" if request.reasoning_effort else "chat_template_kwargs"
        raise _WrongError(f"{name}: needs a chat template, which a raw prompt does not use")


def _check_json(name: str, text: bytes, most: int | None = None) -> None:
    if most is not None and len(text) > most:
        raise _WrongError(f"{name} has more than {most} bytes as JSON")
    try:
        check_depth(text)
        check_digits(text)
    except MalformedError as error:
        raise _WrongError(f"{name} {error}") from None


def _check_format(form: ResponseFormat) -> None:
    """The engine finds out whether a schema or an expression is meaningful."""
    for name in (FormatType.JSON_SCHEMA, FormatType.REGEX, FormatType.CHOICES, FormatType.GRAMMAR):
        if (getattr(form, name) is not None) != (form.type is name):
            rule = "must be given" if form.type is name else f"does not belong to the type {form.type}"
            raise _WrongError(f"response_format.{name}: {rule}")
    if form.json_schema is not None:
        _check_json("response_format.json_schema:", msgspec.json.encode(form.json_schema), MAX_SCHEMA_BYTES)
