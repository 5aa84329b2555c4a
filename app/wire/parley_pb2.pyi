from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FunctionCall(_message.Message):
    __slots__ = ("name", "arguments")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    name: str
    arguments: str
    def __init__(self, name: _Optional[str] = ..., arguments: _Optional[str] = ...) -> None: ...

class MessageToolCall(_message.Message):
    __slots__ = ("id", "type", "function")
    ID_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    FUNCTION_FIELD_NUMBER: _ClassVar[int]
    id: str
    type: str
    function: FunctionCall
    def __init__(self, id: _Optional[str] = ..., type: _Optional[str] = ..., function: _Optional[_Union[FunctionCall, _Mapping]] = ...) -> None: ...

class Message(_message.Message):
    __slots__ = ("role", "content", "tool_calls", "tool_call_id", "name", "reasoning_content")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    REASONING_CONTENT_FIELD_NUMBER: _ClassVar[int]
    role: str
    content: str
    tool_calls: _containers.RepeatedCompositeFieldContainer[MessageToolCall]
    tool_call_id: str
    name: str
    reasoning_content: str
    def __init__(self, role: _Optional[str] = ..., content: _Optional[str] = ..., tool_calls: _Optional[_Iterable[_Union[MessageToolCall, _Mapping]]] = ..., tool_call_id: _Optional[str] = ..., name: _Optional[str] = ..., reasoning_content: _Optional[str] = ...) -> None: ...

class Function(_message.Message):
    __slots__ = ("name", "description", "parameters", "strict")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    STRICT_FIELD_NUMBER: _ClassVar[int]
    name: str
    description: str
    parameters: str
    strict: bool
    def __init__(self, name: _Optional[str] = ..., description: _Optional[str] = ..., parameters: _Optional[str] = ..., strict: _Optional[bool] = ...) -> None: ...

class Tool(_message.Message):
    __slots__ = ("type", "function")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    FUNCTION_FIELD_NUMBER: _ClassVar[int]
    type: str
    function: Function
    def __init__(self, type: _Optional[str] = ..., function: _Optional[_Union[Function, _Mapping]] = ...) -> None: ...

class ToolResult(_message.Message):
    __slots__ = ("tool_call_id", "content")
    TOOL_CALL_ID_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    tool_call_id: str
    content: str
    def __init__(self, tool_call_id: _Optional[str] = ..., content: _Optional[str] = ...) -> None: ...

class JsonSchema(_message.Message):
    __slots__ = ("schema", "name", "description", "strict")
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    STRICT_FIELD_NUMBER: _ClassVar[int]
    schema: str
    name: str
    description: str
    strict: bool
    def __init__(self, schema: _Optional[str] = ..., name: _Optional[str] = ..., description: _Optional[str] = ..., strict: _Optional[bool] = ...) -> None: ...

class ResponseFormat(_message.Message):
    __slots__ = ("type", "json_schema", "regex", "choices", "grammar")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    JSON_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    REGEX_FIELD_NUMBER: _ClassVar[int]
    CHOICES_FIELD_NUMBER: _ClassVar[int]
    GRAMMAR_FIELD_NUMBER: _ClassVar[int]
    type: str
    json_schema: JsonSchema
    regex: str
    choices: _containers.RepeatedScalarFieldContainer[str]
    grammar: str
    def __init__(self, type: _Optional[str] = ..., json_schema: _Optional[_Union[JsonSchema, _Mapping]] = ..., regex: _Optional[str] = ..., choices: _Optional[_Iterable[str]] = ..., grammar: _Optional[str] = ...) -> None: ...

class Fork(_message.Message):
    __slots__ = ("conversation_id", "request_id", "index", "tokens", "text")
    CONVERSATION_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    conversation_id: str
    request_id: str
    index: int
    tokens: _containers.RepeatedScalarFieldContainer[int]
    text: str
    def __init__(self, conversation_id: _Optional[str] = ..., request_id: _Optional[str] = ..., index: _Optional[int] = ..., tokens: _Optional[_Iterable[int]] = ..., text: _Optional[str] = ...) -> None: ...

class StopWhen(_message.Message):
    __slots__ = ("mean_logprob_below", "over")
    MEAN_LOGPROB_BELOW_FIELD_NUMBER: _ClassVar[int]
    OVER_FIELD_NUMBER: _ClassVar[int]
    mean_logprob_below: float
    over: int
    def __init__(self, mean_logprob_below: _Optional[float] = ..., over: _Optional[int] = ...) -> None: ...

class RequestIdentity(_message.Message):
    __slots__ = ("request_id", "user_id", "conversation_id", "tenant")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    CONVERSATION_ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    user_id: str
    conversation_id: str
    tenant: str
    def __init__(self, request_id: _Optional[str] = ..., user_id: _Optional[str] = ..., conversation_id: _Optional[str] = ..., tenant: _Optional[str] = ...) -> None: ...

class Request(_message.Message):
    __slots__ = ("request_id", "user_id", "conversation_id", "prompt", "messages", "max_tokens", "temperature", "top_p", "top_k", "seed", "stop", "logprobs", "top_logprobs", "priority", "deadline_ms", "tenant", "model", "metadata", "response_format", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias", "tools", "tool_choice", "parallel_tool_calls", "tool_results", "store", "min_tokens", "ignore_eos", "raw", "prompt_token_ids", "continue_final_message", "previous_request_id", "keep_context", "tool_mode", "tool_timeout_ms", "prompt_logprobs", "cache", "recall", "best_of", "stop_when", "reasoning_effort", "chat_template_kwargs", "continue_conversation", "not_before", "while_busy", "agent", "replaces")
    class LogitBiasEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: float
        def __init__(self, key: _Optional[int] = ..., value: _Optional[float] = ...) -> None: ...
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    CONVERSATION_ID_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    TOP_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FORMAT_FIELD_NUMBER: _ClassVar[int]
    MIN_P_FIELD_NUMBER: _ClassVar[int]
    PRESENCE_PENALTY_FIELD_NUMBER: _ClassVar[int]
    FREQUENCY_PENALTY_FIELD_NUMBER: _ClassVar[int]
    REPETITION_PENALTY_FIELD_NUMBER: _ClassVar[int]
    LOGIT_BIAS_FIELD_NUMBER: _ClassVar[int]
    TOOLS_FIELD_NUMBER: _ClassVar[int]
    TOOL_CHOICE_FIELD_NUMBER: _ClassVar[int]
    PARALLEL_TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    TOOL_RESULTS_FIELD_NUMBER: _ClassVar[int]
    STORE_FIELD_NUMBER: _ClassVar[int]
    MIN_TOKENS_FIELD_NUMBER: _ClassVar[int]
    IGNORE_EOS_FIELD_NUMBER: _ClassVar[int]
    RAW_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    CONTINUE_FINAL_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    KEEP_CONTEXT_FIELD_NUMBER: _ClassVar[int]
    TOOL_MODE_FIELD_NUMBER: _ClassVar[int]
    TOOL_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    CACHE_FIELD_NUMBER: _ClassVar[int]
    RECALL_FIELD_NUMBER: _ClassVar[int]
    BEST_OF_FIELD_NUMBER: _ClassVar[int]
    STOP_WHEN_FIELD_NUMBER: _ClassVar[int]
    REASONING_EFFORT_FIELD_NUMBER: _ClassVar[int]
    CHAT_TEMPLATE_KWARGS_FIELD_NUMBER: _ClassVar[int]
    CONTINUE_CONVERSATION_FIELD_NUMBER: _ClassVar[int]
    NOT_BEFORE_FIELD_NUMBER: _ClassVar[int]
    WHILE_BUSY_FIELD_NUMBER: _ClassVar[int]
    FROM_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    REPLACES_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    user_id: str
    conversation_id: str
    prompt: str
    messages: _containers.RepeatedCompositeFieldContainer[Message]
    max_tokens: int
    temperature: float
    top_p: float
    top_k: int
    seed: int
    stop: _containers.RepeatedScalarFieldContainer[str]
    logprobs: bool
    top_logprobs: int
    priority: str
    deadline_ms: int
    tenant: str
    model: str
    metadata: _struct_pb2.Struct
    response_format: ResponseFormat
    min_p: float
    presence_penalty: float
    frequency_penalty: float
    repetition_penalty: float
    logit_bias: _containers.ScalarMap[int, float]
    tools: _containers.RepeatedCompositeFieldContainer[Tool]
    tool_choice: str
    parallel_tool_calls: bool
    tool_results: _containers.RepeatedCompositeFieldContainer[ToolResult]
    store: bool
    min_tokens: int
    ignore_eos: bool
    raw: bool
    prompt_token_ids: _containers.RepeatedScalarFieldContainer[int]
    continue_final_message: bool
    previous_request_id: str
    keep_context: bool
    tool_mode: str
    tool_timeout_ms: int
    prompt_logprobs: int
    cache: bool
    recall: int
    best_of: int
    stop_when: StopWhen
    reasoning_effort: str
    chat_template_kwargs: _struct_pb2.Struct
    continue_conversation: bool
    not_before: int
    while_busy: str
    agent: str
    replaces: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, request_id: _Optional[str] = ..., user_id: _Optional[str] = ..., conversation_id: _Optional[str] = ..., prompt: _Optional[str] = ..., messages: _Optional[_Iterable[_Union[Message, _Mapping]]] = ..., max_tokens: _Optional[int] = ..., temperature: _Optional[float] = ..., top_p: _Optional[float] = ..., top_k: _Optional[int] = ..., seed: _Optional[int] = ..., stop: _Optional[_Iterable[str]] = ..., logprobs: _Optional[bool] = ..., top_logprobs: _Optional[int] = ..., priority: _Optional[str] = ..., deadline_ms: _Optional[int] = ..., tenant: _Optional[str] = ..., model: _Optional[str] = ..., metadata: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., response_format: _Optional[_Union[ResponseFormat, _Mapping]] = ..., min_p: _Optional[float] = ..., presence_penalty: _Optional[float] = ..., frequency_penalty: _Optional[float] = ..., repetition_penalty: _Optional[float] = ..., logit_bias: _Optional[_Mapping[int, float]] = ..., tools: _Optional[_Iterable[_Union[Tool, _Mapping]]] = ..., tool_choice: _Optional[str] = ..., parallel_tool_calls: _Optional[bool] = ..., tool_results: _Optional[_Iterable[_Union[ToolResult, _Mapping]]] = ..., store: _Optional[bool] = ..., min_tokens: _Optional[int] = ..., ignore_eos: _Optional[bool] = ..., raw: _Optional[bool] = ..., prompt_token_ids: _Optional[_Iterable[int]] = ..., continue_final_message: _Optional[bool] = ..., previous_request_id: _Optional[str] = ..., keep_context: _Optional[bool] = ..., tool_mode: _Optional[str] = ..., tool_timeout_ms: _Optional[int] = ..., prompt_logprobs: _Optional[int] = ..., cache: _Optional[bool] = ..., recall: _Optional[int] = ..., best_of: _Optional[int] = ..., stop_when: _Optional[_Union[StopWhen, _Mapping]] = ..., reasoning_effort: _Optional[str] = ..., chat_template_kwargs: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., continue_conversation: _Optional[bool] = ..., not_before: _Optional[int] = ..., while_busy: _Optional[str] = ..., agent: _Optional[str] = ..., replaces: _Optional[_Iterable[str]] = ..., **kwargs) -> None: ...

class ToolCall(_message.Message):
    __slots__ = ("id", "name", "arguments")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    arguments: str
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., arguments: _Optional[str] = ...) -> None: ...

class ToolCallDelta(_message.Message):
    __slots__ = ("index", "id", "name", "arguments")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    index: int
    id: str
    name: str
    arguments: str
    def __init__(self, index: _Optional[int] = ..., id: _Optional[str] = ..., name: _Optional[str] = ..., arguments: _Optional[str] = ...) -> None: ...

class Usage(_message.Message):
    __slots__ = ("prompt_tokens", "completion_tokens", "cached_tokens")
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    def __init__(self, prompt_tokens: _Optional[int] = ..., completion_tokens: _Optional[int] = ..., cached_tokens: _Optional[int] = ...) -> None: ...

class Notice(_message.Message):
    __slots__ = ("code", "message", "details")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    details: _struct_pb2.Struct
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ..., details: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class ErrorInfo(_message.Message):
    __slots__ = ("code", "message")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class Logprob(_message.Message):
    __slots__ = ("token", "text", "logprob", "top", "rank")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    LOGPROB_FIELD_NUMBER: _ClassVar[int]
    TOP_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    token: int
    text: str
    logprob: float
    top: _containers.RepeatedCompositeFieldContainer[Logprob]
    rank: int
    def __init__(self, token: _Optional[int] = ..., text: _Optional[str] = ..., logprob: _Optional[float] = ..., top: _Optional[_Iterable[_Union[Logprob, _Mapping]]] = ..., rank: _Optional[int] = ...) -> None: ...

class TokenEvent(_message.Message):
    __slots__ = ("request_id", "user_id", "conversation_id", "type", "index", "tokens", "text", "epoch", "timestamp", "model_version", "finish_reason", "usage", "error", "notice", "logprobs", "prompt_digest", "tool_calls", "tool_call_deltas", "prompt_logprobs", "prompt_start", "reasoning", "copy")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    CONVERSATION_ID_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    NOTICE_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_DIGEST_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_DELTAS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_START_FIELD_NUMBER: _ClassVar[int]
    REASONING_FIELD_NUMBER: _ClassVar[int]
    COPY_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    user_id: str
    conversation_id: str
    type: str
    index: int
    tokens: _containers.RepeatedScalarFieldContainer[int]
    text: str
    epoch: int
    timestamp: int
    model_version: str
    finish_reason: str
    usage: Usage
    error: ErrorInfo
    notice: Notice
    logprobs: _containers.RepeatedCompositeFieldContainer[Logprob]
    prompt_digest: str
    tool_calls: _containers.RepeatedCompositeFieldContainer[ToolCall]
    tool_call_deltas: _containers.RepeatedCompositeFieldContainer[ToolCallDelta]
    prompt_logprobs: _containers.RepeatedCompositeFieldContainer[Logprob]
    prompt_start: str
    reasoning: str
    copy: bool
    def __init__(self, request_id: _Optional[str] = ..., user_id: _Optional[str] = ..., conversation_id: _Optional[str] = ..., type: _Optional[str] = ..., index: _Optional[int] = ..., tokens: _Optional[_Iterable[int]] = ..., text: _Optional[str] = ..., epoch: _Optional[int] = ..., timestamp: _Optional[int] = ..., model_version: _Optional[str] = ..., finish_reason: _Optional[str] = ..., usage: _Optional[_Union[Usage, _Mapping]] = ..., error: _Optional[_Union[ErrorInfo, _Mapping]] = ..., notice: _Optional[_Union[Notice, _Mapping]] = ..., logprobs: _Optional[_Iterable[_Union[Logprob, _Mapping]]] = ..., prompt_digest: _Optional[str] = ..., tool_calls: _Optional[_Iterable[_Union[ToolCall, _Mapping]]] = ..., tool_call_deltas: _Optional[_Iterable[_Union[ToolCallDelta, _Mapping]]] = ..., prompt_logprobs: _Optional[_Iterable[_Union[Logprob, _Mapping]]] = ..., prompt_start: _Optional[str] = ..., reasoning: _Optional[str] = ..., copy: _Optional[bool] = ...) -> None: ...

class Timing(_message.Message):
    __slots__ = ("requested_at", "started_at", "first_token_at", "finished_at")
    REQUESTED_AT_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    FIRST_TOKEN_AT_FIELD_NUMBER: _ClassVar[int]
    FINISHED_AT_FIELD_NUMBER: _ClassVar[int]
    requested_at: int
    started_at: int
    first_token_at: int
    finished_at: int
    def __init__(self, requested_at: _Optional[int] = ..., started_at: _Optional[int] = ..., first_token_at: _Optional[int] = ..., finished_at: _Optional[int] = ...) -> None: ...

class Turn(_message.Message):
    __slots__ = ("request_id", "user_id", "conversation_id", "prompt", "answer", "finish_reason", "usage", "model_version", "created_at", "tenant", "timing", "tool_calls", "route", "experiment", "arm", "cached", "guard", "private", "reasoning", "replaces")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    CONVERSATION_ID_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    TIMING_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    EXPERIMENT_FIELD_NUMBER: _ClassVar[int]
    ARM_FIELD_NUMBER: _ClassVar[int]
    CACHED_FIELD_NUMBER: _ClassVar[int]
    GUARD_FIELD_NUMBER: _ClassVar[int]
    PRIVATE_FIELD_NUMBER: _ClassVar[int]
    REASONING_FIELD_NUMBER: _ClassVar[int]
    REPLACES_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    user_id: str
    conversation_id: str
    prompt: str
    answer: str
    finish_reason: str
    usage: Usage
    model_version: str
    created_at: int
    tenant: str
    timing: Timing
    tool_calls: _containers.RepeatedCompositeFieldContainer[ToolCall]
    route: str
    experiment: str
    arm: str
    cached: str
    guard: _containers.RepeatedScalarFieldContainer[str]
    private: _containers.RepeatedCompositeFieldContainer[PrivateValue]
    reasoning: str
    replaces: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, request_id: _Optional[str] = ..., user_id: _Optional[str] = ..., conversation_id: _Optional[str] = ..., prompt: _Optional[str] = ..., answer: _Optional[str] = ..., finish_reason: _Optional[str] = ..., usage: _Optional[_Union[Usage, _Mapping]] = ..., model_version: _Optional[str] = ..., created_at: _Optional[int] = ..., tenant: _Optional[str] = ..., timing: _Optional[_Union[Timing, _Mapping]] = ..., tool_calls: _Optional[_Iterable[_Union[ToolCall, _Mapping]]] = ..., route: _Optional[str] = ..., experiment: _Optional[str] = ..., arm: _Optional[str] = ..., cached: _Optional[str] = ..., guard: _Optional[_Iterable[str]] = ..., private: _Optional[_Iterable[_Union[PrivateValue, _Mapping]]] = ..., reasoning: _Optional[str] = ..., replaces: _Optional[_Iterable[str]] = ...) -> None: ...

class PrivateValue(_message.Message):
    __slots__ = ("kind", "value")
    KIND_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    kind: str
    value: str
    def __init__(self, kind: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class ToolCallRecord(_message.Message):
    __slots__ = ("request_id", "user_id", "conversation_id", "tool_call_id", "name", "arguments", "created_at", "expires_at", "tenant")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    CONVERSATION_ID_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    user_id: str
    conversation_id: str
    tool_call_id: str
    name: str
    arguments: str
    created_at: int
    expires_at: int
    tenant: str
    def __init__(self, request_id: _Optional[str] = ..., user_id: _Optional[str] = ..., conversation_id: _Optional[str] = ..., tool_call_id: _Optional[str] = ..., name: _Optional[str] = ..., arguments: _Optional[str] = ..., created_at: _Optional[int] = ..., expires_at: _Optional[int] = ..., tenant: _Optional[str] = ...) -> None: ...

class ToolResultRecord(_message.Message):
    __slots__ = ("request_id", "user_id", "tool_call_id", "content", "is_error")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_ID_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    IS_ERROR_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    user_id: str
    tool_call_id: str
    content: str
    is_error: bool
    def __init__(self, request_id: _Optional[str] = ..., user_id: _Optional[str] = ..., tool_call_id: _Optional[str] = ..., content: _Optional[str] = ..., is_error: _Optional[bool] = ...) -> None: ...

class Control(_message.Message):
    __slots__ = ("request_id", "user_id", "type", "action", "outcome", "at", "tenant", "count", "conversation_id", "wait_id", "decision", "by", "arguments", "reason")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    CONVERSATION_ID_FIELD_NUMBER: _ClassVar[int]
    WAIT_ID_FIELD_NUMBER: _ClassVar[int]
    DECISION_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    user_id: str
    type: str
    action: str
    outcome: str
    at: int
    tenant: str
    count: int
    conversation_id: str
    wait_id: str
    decision: str
    by: str
    arguments: str
    reason: str
    def __init__(self, request_id: _Optional[str] = ..., user_id: _Optional[str] = ..., type: _Optional[str] = ..., action: _Optional[str] = ..., outcome: _Optional[str] = ..., at: _Optional[int] = ..., tenant: _Optional[str] = ..., count: _Optional[int] = ..., conversation_id: _Optional[str] = ..., wait_id: _Optional[str] = ..., decision: _Optional[str] = ..., by: _Optional[str] = ..., arguments: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class Latencies(_message.Message):
    __slots__ = ("count", "sum", "max", "bounds", "buckets")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    SUM_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    BOUNDS_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    count: int
    sum: int
    max: int
    bounds: _containers.RepeatedScalarFieldContainer[int]
    buckets: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, count: _Optional[int] = ..., sum: _Optional[int] = ..., max: _Optional[int] = ..., bounds: _Optional[_Iterable[int]] = ..., buckets: _Optional[_Iterable[int]] = ...) -> None: ...

class UsageWindow(_message.Message):
    __slots__ = ("window_start", "window_ms", "tenant", "model", "partition", "revision", "requests", "late", "prompt_tokens", "completion_tokens", "cached_tokens", "cost", "cost_per_1k", "first_token_ms", "duration_ms", "created_at", "route", "experiment", "arm", "cached_requests", "saved_tokens")
    WINDOW_START_FIELD_NUMBER: _ClassVar[int]
    WINDOW_MS_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    LATE_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    COST_PER_1K_FIELD_NUMBER: _ClassVar[int]
    FIRST_TOKEN_MS_FIELD_NUMBER: _ClassVar[int]
    DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    EXPERIMENT_FIELD_NUMBER: _ClassVar[int]
    ARM_FIELD_NUMBER: _ClassVar[int]
    CACHED_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    SAVED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    window_start: int
    window_ms: int
    tenant: str
    model: str
    partition: int
    revision: int
    requests: int
    late: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    cost: float
    cost_per_1k: float
    first_token_ms: Latencies
    duration_ms: Latencies
    created_at: int
    route: str
    experiment: str
    arm: str
    cached_requests: int
    saved_tokens: int
    def __init__(self, window_start: _Optional[int] = ..., window_ms: _Optional[int] = ..., tenant: _Optional[str] = ..., model: _Optional[str] = ..., partition: _Optional[int] = ..., revision: _Optional[int] = ..., requests: _Optional[int] = ..., late: _Optional[int] = ..., prompt_tokens: _Optional[int] = ..., completion_tokens: _Optional[int] = ..., cached_tokens: _Optional[int] = ..., cost: _Optional[float] = ..., cost_per_1k: _Optional[float] = ..., first_token_ms: _Optional[_Union[Latencies, _Mapping]] = ..., duration_ms: _Optional[_Union[Latencies, _Mapping]] = ..., created_at: _Optional[int] = ..., route: _Optional[str] = ..., experiment: _Optional[str] = ..., arm: _Optional[str] = ..., cached_requests: _Optional[int] = ..., saved_tokens: _Optional[int] = ...) -> None: ...

class AuditRecord(_message.Message):
    __slots__ = ("sequence", "previous", "action", "outcome", "user_id", "at", "tenant", "request_id", "conversation_id", "model_version", "route", "experiment", "arm", "prompt_tokens", "completion_tokens", "categories", "prompt_sha256", "answer_sha256", "count", "tool_call_id", "by", "arguments_sha256")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    CONVERSATION_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    EXPERIMENT_FIELD_NUMBER: _ClassVar[int]
    ARM_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CATEGORIES_FIELD_NUMBER: _ClassVar[int]
    PROMPT_SHA256_FIELD_NUMBER: _ClassVar[int]
    ANSWER_SHA256_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_ID_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_SHA256_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    previous: str
    action: str
    outcome: str
    user_id: str
    at: int
    tenant: str
    request_id: str
    conversation_id: str
    model_version: str
    route: str
    experiment: str
    arm: str
    prompt_tokens: int
    completion_tokens: int
    categories: _containers.RepeatedScalarFieldContainer[str]
    prompt_sha256: str
    answer_sha256: str
    count: int
    tool_call_id: str
    by: str
    arguments_sha256: str
    def __init__(self, sequence: _Optional[int] = ..., previous: _Optional[str] = ..., action: _Optional[str] = ..., outcome: _Optional[str] = ..., user_id: _Optional[str] = ..., at: _Optional[int] = ..., tenant: _Optional[str] = ..., request_id: _Optional[str] = ..., conversation_id: _Optional[str] = ..., model_version: _Optional[str] = ..., route: _Optional[str] = ..., experiment: _Optional[str] = ..., arm: _Optional[str] = ..., prompt_tokens: _Optional[int] = ..., completion_tokens: _Optional[int] = ..., categories: _Optional[_Iterable[str]] = ..., prompt_sha256: _Optional[str] = ..., answer_sha256: _Optional[str] = ..., count: _Optional[int] = ..., tool_call_id: _Optional[str] = ..., by: _Optional[str] = ..., arguments_sha256: _Optional[str] = ...) -> None: ...

class Erasure(_message.Message):
    __slots__ = ("user_id", "erased_at", "created_at", "conversation_id")
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    ERASED_AT_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    CONVERSATION_ID_FIELD_NUMBER: _ClassVar[int]
    user_id: str
    erased_at: int
    created_at: int
    conversation_id: str
    def __init__(self, user_id: _Optional[str] = ..., erased_at: _Optional[int] = ..., created_at: _Optional[int] = ..., conversation_id: _Optional[str] = ...) -> None: ...
