"""The parameters that chat completions and completions have in common."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from app.gateway.asking.ask import FormatBody
from app.gateway.callers.identity import Identity
from app.gateway.edge.errors import ApiError, invalid, renamed
from app.wire.error import ErrorCode
from app.wire.ids import new_request_id
from app.wire.request import INT64, Priority, Request, SamplingFields
from app.wire.response_format import FormatType, JsonSchema, ResponseFormat

MAX_CHOICES = 128
MAX_CHOICES_BYTES = 4 * 1024 * 1024
REST_OF_CONTEXT = 2**31 - 1
"""As `max_tokens`: a worker never generates more than the model's context has room for."""


class StreamOptions(msgspec.Struct, frozen=True):
    """`continuous_usage_stats` of vLLM has no effect: the prompt's tokens are known at the end."""

    include_usage: bool = False
    continuous_usage_stats: bool = False


class StructuredOutputs(msgspec.Struct, frozen=True, kw_only=True):
    """vLLM's form of an output constraint; exactly one field is set."""

    json: dict[str, Any] | str | None = None
    regex: str | None = None
    choice: tuple[str, ...] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    structural_tag: str | None = None

    @property
    def response_format(self) -> ResponseFormat | None:
        """Raises `ApiError`."""
        given = [name for name in self.__struct_fields__ if getattr(self, name)]
        if not given:
            return None
        if len(given) > 1 or self.structural_tag:
            raise invalid("structured_outputs", "must have one of json, regex, choice, grammar and json_object")
        if self.json is not None:
            return ResponseFormat(type=FormatType.JSON_SCHEMA, json_schema=JsonSchema(schema_=_schema(self.json)))
        if self.regex is not None:
            return ResponseFormat(type=FormatType.REGEX, regex=self.regex)
        if self.choice is not None:
            return ResponseFormat(type=FormatType.CHOICES, choices=self.choice)
        if self.grammar is not None:
            return ResponseFormat(type=FormatType.GRAMMAR, grammar=self.grammar)
        return ResponseFormat(type=FormatType.JSON_OBJECT)


class SamplingBody(SamplingFields, frozen=True, kw_only=True):
    max_tokens: int | None = None  # -1 is no limit
    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None
    response_format: FormatBody | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: dict[str, Any] | str | None = None
    guided_regex: str | None = None
    guided_choice: tuple[str, ...] | None = None
    guided_grammar: str | None = None
    user: str | None = None
    user_id: str | None = None
    tenant: str | None = None
    priority: Priority | int | None = None
    deadline_ms: int | None = None
    metadata: dict[str, Any] | None = None
    store: bool | None = None
    cache: bool | None = None
    recall: int | None = None

    @property
    def wants_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def choices(self) -> int:
        """Raises `ApiError`."""
        if self.n is not None and not 1 <= self.n <= MAX_CHOICES:
            raise invalid("n", f"must be at least 1 and at most {MAX_CHOICES}")
        return self.n or 1

    @property
    def names(self) -> dict[str, str]:
        """How this API names fields of a request that it names otherwise."""
        return {}

    def in_callers_words(self, error: ApiError) -> ApiError:
        """The error in the words of this API."""
        return renamed(error, self.names)

    def check_tenant(self, identity: Identity) -> None:
        if self.tenant not in {None, identity.tenant}:
            raise invalid("tenant", "must be the key's own tenant")

    def fields(self, identity: Identity, *, store: bool, max_tokens: int) -> dict[str, Any]:
        """The fields of the first choice's request; `store` applies if the body has none. Raises `ApiError`."""
        if self.stream and self.prompt_logprobs is not None:
            raise invalid("prompt_logprobs", "excludes stream")
        request_id = new_request_id()
        names = (*SamplingFields.__struct_fields__, "model", "deadline_ms", "metadata", "recall")
        return {
            **{name: getattr(self, name) for name in names},
            "request_id": request_id,
            "conversation_id": request_id,
            "user_id": identity.user_id,
            "tenant": identity.tenant,
            "max_tokens": max_tokens,
            "cache": self.cache is not False,
            "priority": _priority(self.priority),
            "logit_bias": self.logit_bias or None,
            "response_format": self._format(),
            "store": store if self.store is None else self.store,
        }

    def _format(self) -> ResponseFormat | None:
        guided = StructuredOutputs(
            json=self.guided_json, regex=self.guided_regex, choice=self.guided_choice, grammar=self.guided_grammar
        )
        other = None if self.structured_outputs is None else self.structured_outputs.response_format
        own = None if self.response_format is None else self.response_format.response_format
        formats = [one for one in (own, other, guided.response_format) if one is not None]
        if len(formats) > 1:
            raise invalid("structured_outputs", "excludes response_format and guided_*")
        return formats[0] if formats else None


def limit_of(*given: int | None, unset: int) -> int:
    """The first limit that is set; -1, as LiteLLM and llama.cpp have it, is none."""
    return next((one for one in given if one is not None and one != -1), unset)


def choices_of(first: Request, choices: int) -> list[Request]:
    """The requests of all choices: each after the first has a conversation of its own, and the next seed."""
    requests = [first]
    for number in range(1, choices):
        request_id = new_request_id()
        seed = _seed(first.seed, number)
        requests.append(replace(first, request_id=request_id, conversation_id=request_id, seed=seed))
    return requests


def check_size(first: Request, choices: int) -> None:
    """Raise `ApiError` if the requests of all choices are too large together."""
    if choices > 1 and choices * len(msgspec.json.encode(first)) > MAX_CHOICES_BYTES:
        message = f"n: each choice is a request, and together they exceed {MAX_CHOICES_BYTES} bytes"
        raise ApiError(ErrorCode.INVALID_REQUEST, message, status=413, param="n")


def _schema(schema: dict[str, Any] | str) -> dict[str, Any]:
    if isinstance(schema, dict):
        return schema
    try:
        return msgspec.json.decode(schema, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise invalid("structured_outputs", "json is not the JSON text of an object") from None


def _priority(priority: Priority | int | None) -> Priority:
    """VLLM's priorities are numbers; a lower one runs first."""
    if isinstance(priority, Priority):
        return priority
    if not priority:
        return Priority.STANDARD
    return Priority.INTERACTIVE if priority < 0 else Priority.BATCH


def _seed(seed: int | None, number: int) -> int | None:
    """The seed of choice `number`; the same seed would give the same answer."""
    if seed is None or seed not in INT64:
        return seed
    return (seed + number - INT64.start) % (INT64.stop - INT64.start) + INT64.start
