"""Records of `requests`: a user's request."""

from __future__ import annotations

import enum
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from app.wire.ids import Name
from app.wire.response_format import ResponseFormat
from app.wire.tools import (
    MAX_TOOL_CALLS,
    MAX_TOOL_TIMEOUT_MS,
    MAX_TOOLS,
    MessageToolCall,
    ToolChoice,
    ToolField,
    ToolMode,
    ToolResult,
)

INT64 = range(-(2**63), 2**63)
MAX_STOP_STRINGS = 16
MAX_STOP_LENGTH = 256
MAX_TOP_LOGPROBS = 20
MAX_RECALL = 20
MAX_BEST_OF = 8
MAX_STOP_WINDOW = 1024
MAX_PROMPT_LOGPROBS = 4096  # entries of one event, which is one record
MAX_LOGIT_BIASES = 1024
MAX_LOGIT_BIAS = 100
MAX_PENALTY = 2
MIN_REPETITION_PENALTY = 0.01  # logits are divided by it
MAX_METADATA_BYTES = 16384
MAX_TEMPLATE_VALUES_BYTES = 4096
MAX_MESSAGES = 2048
MAX_REPLACED = 100  # the record on `turns` has them, beside the largest texts
MAX_TOKEN_ID = 2**31 - 1
DEFAULT_CONVERSATION = "default"
_MOST = INT64.stop - 1
AtLeastOne = Annotated[int, Meta(ge=1, le=_MOST)]
NotNegative = Annotated[int, Meta(ge=0, le=_MOST)]
Share = Annotated[float, Meta(ge=0, le=1)]
Penalty = Annotated[float, Meta(ge=-MAX_PENALTY, le=MAX_PENALTY)]
Likeliest = Annotated[int, Meta(ge=0, le=MAX_TOP_LOGPROBS)]
StopString = Annotated[str, Meta(min_length=1, max_length=MAX_STOP_LENGTH)]
StopStrings = Annotated[tuple[StopString, ...], Meta(max_length=MAX_STOP_STRINGS)]
Bias = Annotated[float, Meta(ge=-MAX_LOGIT_BIAS, le=MAX_LOGIT_BIAS)]
Biases = Annotated[dict[NotNegative, Bias], Meta(max_length=MAX_LOGIT_BIASES)]
TokenId = Annotated[int, Meta(ge=0, le=MAX_TOKEN_ID)]
TemplateValues = dict[str, str | int | float | bool | None]


class Priority(enum.StrEnum):
    INTERACTIVE = "interactive"
    STANDARD = "standard"
    BATCH = "batch"


class Role(enum.StrEnum):
    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message. An assistant's may have `reasoning_content`, which precedes the rest, and `tool_calls`, no content.
    One of the role `tool` is a call's result.
    """

    role: Role
    content: str | None = None
    tool_calls: Annotated[tuple[MessageToolCall, ...], Meta(max_length=MAX_TOOL_CALLS)] | None = None
    tool_call_id: str | None = None
    name: str | None = None
    reasoning_content: str | None = None

    @property
    def text(self) -> str:
        return self.content or ""


class WhileBusy(enum.StrEnum):
    """What becomes of earlier requests of the conversation that are not over (app/features/busy.py)."""

    QUEUE = "queue"
    REJECT = "reject"
    INTERRUPT = "interrupt"
    ROLLBACK = "rollback"
    STEER = "steer"

    @property
    def supersedes(self) -> bool:
        """Whether they end."""
        return self in {WhileBusy.INTERRUPT, WhileBusy.ROLLBACK}


class Fork(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a conversation begins as a copy of another one (app/features/forks.py): behind the turn of `request_id`,
    or, with `index`, within its answer, which begins with these `tokens`; `text` is what readers had of them.
    """

    request_id: str
    conversation_id: Name = DEFAULT_CONVERSATION
    index: NotNegative | None = None
    tokens: tuple[TokenId, ...] | None = None
    text: str | None = None


class StopWhen(msgspec.Struct, frozen=True, kw_only=True):
    """The answer ends with `stop` once the mean log probability of its last `over` tokens is below this value."""

    mean_logprob_below: Annotated[float, Meta(ge=-1000, le=0)]
    over: Annotated[int, Meta(ge=1, le=MAX_STOP_WINDOW)]


class SamplingFields(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How an answer's tokens are drawn. A new parameter is a field here, with its range."""

    max_tokens: AtLeastOne | None = None
    min_tokens: NotNegative | None = None
    ignore_eos: bool | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Share | None = None
    top_k: Annotated[int, Meta(ge=-1, le=_MOST)] | None = None
    min_p: Share | None = None
    seed: Annotated[int, Meta(ge=INT64.start, le=_MOST)] | None = None
    stop: StopString | StopStrings | None = None
    stop_when: StopWhen | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, Meta(ge=MIN_REPETITION_PENALTY, le=MAX_PENALTY)] | None = None
    logit_bias: Biases | None = None
    best_of: Annotated[int, Meta(ge=1, le=MAX_BEST_OF)] | None = None
    prompt_logprobs: Likeliest | None = None


class RequestFields(SamplingFields, frozen=True, kw_only=True, omit_defaults=True):
    """What a sender of a request may set; None means "not set". `validate_request` checks what types cannot express.

    The prompt is one of:

    prompt: Continues the stored conversation; with `raw`, it is what the model reads, without template or memory.
    messages: The whole context, unless `previous_request_id` or `continue_conversation` is set. With
        `continue_final_message` the answer continues the last one, the assistant's.
    tool_results: Continue the stored conversation with the results of its last turn's calls.
    prompt_token_ids: Like a raw prompt, as token ids.

    fork: The field `from`: the conversation begins as a copy of another one. With an index, none of these is needed.

    `previous_request_id`: the request sees the stored conversation up to the turn of that request; with
    `continue_conversation` its `messages` follow all of the stored conversation. With `keep_context`
    the conversation remembers all of `messages`, not only those from the last one of the user on. With `store` false
    nothing is remembered or indexed. `tool_timeout_ms`: how long an answer with `tool_mode` `kafka` waits for the
    results of its calls. `not_before`: until then, in Unix milliseconds, the request waits. `while_busy`: what becomes
    of earlier ones of its conversation. `replaces`: requests whose turns are found no more once this one has an answer.
    `agent`: one of the policy, whose instructions, model and tools the request
    has. With `cache` false the answer is neither taken from the response cache nor kept in it.
    `recall`: how many related older turns of the user stand in the prompt; the default is the policy's. `best_of`: so
    many answers are generated, and readers get the best. `prompt_logprobs`: how many of the likeliest tokens are
    reported with each token of the prompt. `reasoning_effort`: how much the model reasons before its answer, `none` for
    not at all; `chat_template_kwargs`: further variables of its chat template, such as `enable_thinking`.
    """

    request_id: str | None = None
    user_id: str | None = None
    prompt: str | None = None
    messages: Annotated[tuple[Message, ...], Meta(max_length=MAX_MESSAGES)] | None = None
    conversation_id: Name = DEFAULT_CONVERSATION
    agent: Name | None = None
    logprobs: bool | None = None
    top_logprobs: Likeliest | None = None
    priority: Priority = Priority.STANDARD
    deadline_ms: NotNegative | None = None
    not_before: NotNegative | None = None
    while_busy: WhileBusy = WhileBusy.QUEUE
    fork: Fork | None = msgspec.field(default=None, name="from")
    replaces: Annotated[tuple[str, ...], Meta(max_length=MAX_REPLACED)] = ()
    model: Name | None = None
    metadata: dict[str, Any] | None = None
    response_format: ResponseFormat | None = None
    tools: Annotated[tuple[ToolField, ...], Meta(max_length=MAX_TOOLS)] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    tool_results: Annotated[tuple[ToolResult, ...], Meta(max_length=MAX_TOOL_CALLS)] | None = None
    tool_mode: ToolMode = ToolMode.CLIENT
    tool_timeout_ms: Annotated[int, Meta(ge=1, le=MAX_TOOL_TIMEOUT_MS)] | None = None
    store: bool | None = None
    raw: bool = False
    prompt_token_ids: tuple[TokenId, ...] | None = None
    continue_final_message: bool = False
    previous_request_id: str | None = None
    keep_context: bool = False
    cache: bool = True
    recall: Annotated[int, Meta(ge=0, le=MAX_RECALL)] | None = None
    reasoning_effort: Name | None = None
    chat_template_kwargs: TemplateValues | None = None
    continue_conversation: bool = False


class Request(RequestFields, frozen=True, kw_only=True, omit_defaults=True):
    """One request, as it is on the topic."""

    request_id: str
    user_id: str
    store: bool = True
    tenant: Name | None = None

    @property
    def asks(self) -> bool:
        """Whether it asks for a feature that the policy need not have on."""
        is_of_policy = self.not_before is not None or self.agent is not None
        is_of_policy = is_of_policy or self.while_busy is not WhileBusy.QUEUE or self.fork is not None
        return (self.best_of or 1) > 1 or self.tool_mode is ToolMode.KAFKA or bool(self.recall) or is_of_policy

    @property
    def is_raw(self) -> bool:
        """Whether the prompt is no conversation, so that the request has no memory."""
        return self.raw or self.prompt_token_ids is not None

    @property
    def sees_conversation(self) -> bool:
        """Whether the stored conversation precedes what the request brings."""
        if self.is_raw:
            return False
        return self.messages is None or self.continue_conversation or self.previous_request_id is not None

    @property
    def wants_json(self) -> bool:
        """Whether the answer is JSON."""
        return self.response_format is not None and self.response_format.is_json

    @property
    def stop_strings(self) -> tuple[str, ...]:
        if self.stop is None:
            return ()
        return (self.stop,) if isinstance(self.stop, str) else self.stop

    @property
    def question(self) -> str:
        """What the user says in this turn: `prompt`, or the last user message of `messages`."""
        if self.prompt is not None:
            return self.prompt
        return next((m.text for m in reversed(self.messages or ()) if m.role is Role.USER), "")
