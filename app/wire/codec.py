"""Encode and decode records, in JSON or Protobuf: every record enters and leaves through this module.

A decoder reads arbitrary bytes. It returns a record with correct types or raises `WireError`, with the `request_id` if
one can be read. Nothing else leaves it: what a parser raises unexpectedly is about these bytes, not about this process.

A record of `requests` without `request_id` has the id `partition-offset`, which is the same at each reading; one
without `user_id` belongs to the user in its key. A refusal names everything that is missing or unknown at once, so that
a sender mends it in one try.

Unknown fields of a request are ignored, but for parameters of OpenAI's and vLLM's APIs that would change an answer and
are not supported: these are refused by name, because a sender that sets one expects another answer. A value that asks
for nothing is accepted. The gateway supports some of them by translating them.
"""

from __future__ import annotations

import enum
import json
import logging
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from types import MappingProxyType, UnionType
from typing import Any, NamedTuple, TypeVar, overload

import msgspec
from google.protobuf.message import DecodeError

from app.process.near_names import nearest, with_hint
from app.process.printable import printable
from app.wire import json_codec, parley_pb2, protobuf_codec
from app.wire.audit import AuditRecord
from app.wire.control import Control
from app.wire.erasure import Erasure
from app.wire.error import ErrorCode, WireError
from app.wire.event import TokenEvent
from app.wire.ids import is_conversation_id, is_request_id, is_user_id
from app.wire.json_codec import MalformedError, check_depth, top_level, without_mark
from app.wire.request import DEFAULT_CONVERSATION, Request
from app.wire.tool_records import ToolCallRecord, ToolResultRecord
from app.wire.turn import Turn
from app.wire.usage import UsageWindow
from models.interface.unexpected import type_and_line

log = logging.getLogger(__name__)

Record = Request | TokenEvent | Turn | Control | UsageWindow | ToolCallRecord | ToolResultRecord | AuditRecord | Erasure
R = TypeVar("R")
Encoded = tuple[bytes, list[tuple[str, bytes]]]
HeaderPairs = Iterable[tuple[str, bytes | None]]
Headers = HeaderPairs | Mapping[str, bytes | None] | None

CONTENT_TYPE = "content-type"
FORWARDED = "forwarded-from"
"""On an erasure that a worker forwarded: the partition it came from, `@`, and its time there in Unix milliseconds. It
is not forwarded again.
"""
WITH_SOURCE = "erased-with"
"""On an erasure of a conversation that began as a copy of this one, which is erased. That one's erasure has found all
copies.
"""
WITHDRAWN = "response-deleted"
"""On a cancel: gateways serve that response no more."""
WOKEN_HEADER = "woken"
"""On a request that wakes its answer: how often it was woken. Other readers of `requests` skip it."""
INTAKE_FROM = "intake-from"
"""On a request made of a foreign record: its place and time (app/foreign/source.py)."""
MOST_HEADERS = 1000
"""Of a record: a megabyte of them is hundreds of thousands, and each reader goes through them."""
MAX_TRACE_BYTES = 512
TRACE_HEADERS = ("traceparent", "tracestate")
_TRACEPARENT = re.compile(rb"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
PROTOBUF_TYPE = "application/x-protobuf"
PROMPTS = ("prompt", "messages", "tool_results", "prompt_token_ids")
"""A request has one of these."""
_OWN = sorted(Request.__struct_encode_fields__)
_NULL = msgspec.Raw(b"null")
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_MOST_NAMES = 12
_LONGEST_NAME = 40
_TENANT_TAG = b"\x82\x01"
_NOTHING: tuple[Any, ...] = (None, False, [], {}, "")

UNSUPPORTED: Mapping[str, tuple[Any, ...]] = MappingProxyType(
    {
        "access_programs": _NOTHING,
        "add_special_tokens": _NOTHING,
        "allowed_token_ids": _NOTHING,
        "audio": _NOTHING,
        "background": _NOTHING,
        "bad_words": _NOTHING,
        "chat_template": _NOTHING,
        "context_management": _NOTHING,
        "documents": _NOTHING,
        "early_stopping": _NOTHING,
        "function_call": (None, "none", "auto"),
        "functions": _NOTHING,
        "guided_choice": _NOTHING,
        "guided_grammar": _NOTHING,
        "guided_json": _NOTHING,
        "guided_regex": _NOTHING,
        "image": _NOTHING,
        "include_stop_str_in_output": _NOTHING,
        "kv_transfer_params": _NOTHING,
        "logits_processors": _NOTHING,
        "max_tool_calls": (None,),
        "max_completion_tokens": (None,),
        "mm_processor_kwargs": _NOTHING,
        "modalities": (None, ["text"]),
        "moderation": _NOTHING,
        "n": (None, 1),
        "prompt_embeds": _NOTHING,
        "reasoning": _NOTHING,
        "return_token_ids": _NOTHING,
        "return_tokens_as_token_ids": _NOTHING,
        "skip_special_tokens": (None, True),
        "stop_token_ids": _NOTHING,
        "structural_tag": _NOTHING,
        "structured_outputs": _NOTHING,
        "suffix": _NOTHING,
        "thinking_token_budget": (None,),
        "truncate_prompt_tokens": (None,),
        "use_beam_search": _NOTHING,
        "verbosity": (None, "medium"),
        "vllm_xargs": _NOTHING,
        "web_search_options": (None,),
    }
)
_KNOWN = frozenset(Request.__struct_encode_fields__) | UNSUPPORTED.keys()


class WireFormat(enum.StrEnum):
    JSON = "json"
    PROTOBUF = "protobuf"


class _Charged(msgspec.Struct):
    tenant: str | None = None


def encode(record: Record, wire_format: WireFormat | str = WireFormat.JSON) -> Encoded:
    """The record's value and headers; a list, because aiokafka accepts nothing else."""
    if wire_format == WireFormat.JSON:
        return json_codec.encode(record), []
    return protobuf_codec.encode(record), [(CONTENT_TYPE, PROTOBUF_TYPE.encode())]


@overload
def decode(record_type: type[R], value: bytes | None, headers: Headers = None) -> R: ...
@overload
def decode(record_type: UnionType, value: bytes | None, headers: Headers = None) -> Any: ...
def decode(record_type: Any, value: bytes | None, headers: Headers = None) -> Any:
    """The record in this value. Raises `WireError`."""
    try:
        if value is None:
            raise MalformedError("the record has no value")
        if format_of(headers) is WireFormat.PROTOBUF:
            return protobuf_codec.decode(value, record_type)
        if record_type is Request:
            check_depth(value)
            json_codec.check_brackets(value)
        record = json_codec.decode(value, record_type)
        if record_type is Request:
            _check_supported(value)
    except MalformedError as error:
        message = str(error)
    except Exception as error:  # noqa: BLE001 - bytes of others: whatever it is, it is about them
        log.warning("a record of %d bytes cannot be read: %s", len(value or b""), type_and_line(error))
        message = "the record cannot be read"
    else:
        return record
    request_id, user_id, conversation_id = salvage(value, headers)
    raise WireError(
        ErrorCode.INVALID_REQUEST, message, request_id=request_id, user_id=user_id, conversation_id=conversation_id
    )


def _check_supported(value: bytes) -> None:
    if (name := unsupported(value)) is not None:
        raise MalformedError(f"{name}: is not supported")


def read_request(value: bytes | None, headers: Headers, *, key: bytes | None, partition: int, offset: int) -> Request:
    """The request in the record of this place, with `request_id` and `user_id`. Raises `WireError`."""
    try:
        return decode(Request, value, headers)
    except WireError:
        completed = _completed(value, headers, key, f"{partition}-{offset}")
        if completed is None:
            raise
    return decode(Request, completed, headers)


def explained(error: WireError, value: bytes | None, headers: Headers) -> WireError:
    """The refusal of a request, with the names of all missing and unknown fields."""
    fields = _fields_of(value, headers)
    if fields is None or not error.dead_letter:
        return error
    message = error.message
    if fields.get("user_id", _NULL) == _NULL and error.user_id is None:
        missing = ["user_id", *([] if any(name in fields for name in PROMPTS) else ["prompt"])]
        verb = "is" if len(missing) == 1 else "are"
        message = f"{quoted(missing)} {verb} missing, and the record has no key that names the user"
    if unknown := [name for name in fields if name not in _KNOWN]:
        message += f"; the record has {quoted(unknown)}, which a request does not know"
        if hints := [f"{name}: {near}" for name in unknown[:_MOST_NAMES] if (near := nearest(name, _OWN)) is not None]:
            message += f" (probably meant: {printable(', '.join(hints))})"
    return WireError(
        error.code,
        message,
        request_id=error.request_id,
        user_id=error.user_id,
        conversation_id=error.conversation_id,
    )


def ignored_fields(value: bytes | None, headers: Headers) -> tuple[str, ...]:
    """The fields of a valid request that it does not know, as they may stand in a log, with what is probably meant."""
    fields = _fields_of(value, headers) or {}
    return unknown_fields([name for name in fields if name not in _KNOWN], _OWN)


def unknown_fields(names: Iterable[str], known: Collection[str]) -> tuple[str, ...]:
    """Those of the names that are not known, as they may stand in a log, each with the one that is probably meant."""
    unknown = [name for name in names if name not in known]
    return tuple(with_hint(printable(name)[:_LONGEST_NAME], known) for name in unknown[:_MOST_NAMES])


def quoted(names: Sequence[str]) -> str:
    """These names in a sentence: a record may have none, or thousands of any length."""
    if not names:
        return "no fields"
    shown = [f"`{printable(name)[:_LONGEST_NAME]}`" for name in names[:_MOST_NAMES]]
    return _listed(shown) if len(names) <= _MOST_NAMES else f"{', '.join(shown)} and {len(names) - _MOST_NAMES} more"


def _listed(names: Sequence[str]) -> str:
    return " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)


def _completed(value: bytes | None, headers: Headers, key: bytes | None, place: str) -> bytes | None:
    """The record with what it does not name; None if that is nothing, or the record is no object."""
    defaults = {"request_id": place, **_user_in(key)}
    if value is not None and format_of(headers) is WireFormat.PROTOBUF:
        return _completed_protobuf(value, defaults)
    if (fields := _fields_of(value, headers)) is None:
        return None
    missing = {name: default for name, default in defaults.items() if fields.get(name, _NULL) == _NULL}
    if not missing:
        return None
    return json_codec.encode({**fields, **missing})


def _completed_protobuf(value: bytes, defaults: Mapping[str, str]) -> bytes | None:
    message = parley_pb2.Request()
    try:
        message.ParseFromString(value)
    except Exception:  # noqa: BLE001 - bytes of others; the first reading has said what is wrong with them
        return None
    missing = [name for name in defaults if not getattr(message, name)]
    for name in missing:
        setattr(message, name, defaults[name])
    return message.SerializeToString() if missing else None


def _user_in(key: bytes | None) -> dict[str, str]:
    try:
        user_id = (key or b"").decode()
    except UnicodeDecodeError:
        return {}
    return {"user_id": user_id} if is_user_id(user_id) else {}


def _fields_of(value: bytes | None, headers: Headers) -> dict[str, msgspec.Raw] | None:
    """The top level of a JSON object; None of everything else."""
    if value is None or format_of(headers) is WireFormat.PROTOBUF:
        return None
    try:
        check_depth(value)
        return _FIELDS.decode(without_mark(value))
    except (MalformedError, msgspec.DecodeError, UnicodeError):
        return None


def is_neutral(name: str, value: msgspec.Raw) -> bool:
    """Whether this value of an unsupported parameter asks for nothing. One that cannot be read does not."""
    try:
        decoded = msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError, ValueError):  # valid JSON, for example 1e999
        return False
    decoded = _without_nulls(decoded)
    return any(decoded == one and type(decoded) is type(one) for one in UNSUPPORTED[name])


def _without_nulls(value: Any) -> Any:
    """The value as clients mean it: options that are not set are null, and a whole number may be a float."""
    if isinstance(value, dict):
        return {key: one for key, one in value.items() if one is not None}
    return int(value) if isinstance(value, float) and value.is_integer() else value


def unsupported(record: bytes) -> str | None:
    """The name of the first unsupported parameter that a record of `requests`, which is valid JSON, sets."""
    fields = _FIELDS.decode(without_mark(record))
    names = (name for name in fields if name in UNSUPPORTED and not is_neutral(name, fields[name]))
    return next(names, None) or _schema_beside_type(fields.get("response_format", _NULL))


def _schema_beside_type(form: msgspec.Raw) -> str | None:
    """The name of a schema that would be skipped as an unknown field, so that the answer would not follow it."""
    schema = _NULL if form == _NULL else _FIELDS.decode(form).get("schema", _NULL)
    return None if schema == _NULL else "response_format.schema"


class Salvaged(NamedTuple):
    """What can be read of an invalid record, so that its sender can get an error. Each value is valid by itself."""

    request_id: str | None = None
    user_id: str | None = None
    conversation_id: str = DEFAULT_CONVERSATION


def salvage(value: bytes | None, headers: Headers) -> Salvaged:
    """The identity in a record that may be no valid one."""
    try:
        fields = {} if value is None else _identity(value, headers)
    except Exception as error:  # noqa: BLE001 - bytes of others
        log.warning("nothing of an invalid record can be read: %s", type_and_line(error))
        fields = {}
    request, user, conversation = (fields.get(name) for name in ("request_id", "user_id", "conversation_id"))
    return Salvaged(
        request if is_request_id(request) else None,
        user if is_user_id(user) else None,
        conversation if is_conversation_id(conversation) else DEFAULT_CONVERSATION,
    )


def tenant_in(value: bytes | None, headers: Headers) -> str | None:
    """The `tenant` that a request names, without decoding the rest of it. It may be no valid request."""
    is_protobuf = format_of(headers) is WireFormat.PROTOBUF
    if value is None or (_TENANT_TAG if is_protobuf else b'"tenant"') not in value:
        return None
    try:
        if is_protobuf:
            return parley_pb2.RequestIdentity.FromString(value).tenant or None
        return msgspec.json.decode(without_mark(value), type=_Charged).tenant
    except (DecodeError, msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


def _identity(value: bytes, headers: Headers) -> dict[str, Any]:
    """Only the top level is parsed, so neither depth nor size of the rest matters."""
    try:
        if format_of(headers) is WireFormat.PROTOBUF:
            return protobuf_codec.plain(parley_pb2.RequestIdentity.FromString(value))
        text = top_level(without_mark(value)).decode("utf-8", errors="replace")
        fields = json.loads(text, parse_int=float)  # float accepts any number of digits
    except (DecodeError, ValueError):
        return {}
    return fields if isinstance(fields, dict) else {}


def pairs_of(headers: Headers) -> list[tuple[str, bytes | None]]:
    if headers is None:
        return []
    return list(headers.items() if isinstance(headers, Mapping) else headers)


def is_forwarded(headers: HeaderPairs) -> bool:
    """Whether a worker forwarded the erasure."""
    return any(name == FORWARDED for name, _ in headers)


def is_with_source(headers: HeaderPairs) -> bool:
    """Whether the erased conversation is a copy of another one that is erased."""
    return any(name == WITH_SOURCE for name, _ in headers)


def is_withdrawal(headers: HeaderPairs) -> bool:
    """Whether the cancel also deletes the response."""
    return any(name == WITHDRAWN for name, _ in headers)


def trace_headers_of(headers: HeaderPairs) -> tuple[tuple[str, bytes], ...]:
    """The W3C trace context in the headers, which every record that is caused by this one also carries.

    A context that is malformed or present twice is dropped with its `tracestate`, because it would be repeated on every
    token event.
    """
    valid: dict[str, bytes] = {}
    for name, value in headers:
        if name in TRACE_HEADERS and value is not None and len(value) <= MAX_TRACE_BYTES:
            valid.setdefault(name, value)
    if not _TRACEPARENT.fullmatch(valid.get(TRACE_HEADERS[0], b"")):
        return ()
    return tuple(valid.items())


def format_of(headers: Headers) -> WireFormat:
    """The format that the content type names; JSON by default."""
    if not headers:
        return WireFormat.JSON
    for name, value in islice(headers.items() if isinstance(headers, Mapping) else headers, MOST_HEADERS):
        if name.lower() == CONTENT_TYPE and value is not None:
            media_type = value.split(b";", 1)[0].strip().lower()
            if media_type in {b"application/x-protobuf", b"application/protobuf"}:
                return WireFormat.PROTOBUF
    return WireFormat.JSON
