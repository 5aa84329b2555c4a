"""The fields of a record of `requests`, so that a misspelt one is told before anything is sent."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Literal, NotRequired, TypeAlias, TypedDict

_NAMES = """
    agent best_of cache chat_template_kwargs continue_conversation continue_final_message conversation_id deadline_ms
    frequency_penalty from ignore_eos keep_context logit_bias logprobs max_tokens messages metadata min_p min_tokens
    model not_before parallel_tool_calls presence_penalty previous_request_id priority prompt prompt_logprobs
    prompt_token_ids raw reasoning_effort recall repetition_penalty replaces request_id response_format seed stop
    stop_when store temperature tenant tool_choice tool_mode tool_results tool_timeout_ms tools top_k top_logprobs top_p
    user_id while_busy
"""


class Fork(TypedDict):
    """Where a conversation begins as a copy: behind a request, or with `index` within its answer."""

    request_id: str
    conversation_id: NotRequired[str]
    index: NotRequired[int]
    tokens: NotRequired[list[int]]
    text: NotRequired[str]


DEFAULT_CONVERSATION = "default"
WhileBusy: TypeAlias = Literal["queue", "reject", "interrupt", "rollback", "steer"]
FIELDS = frozenset(_NAMES.split())


def check_fields(names: Iterable[str]) -> None:
    """Raise `TypeError` for a name that would have no effect."""
    for name in names:
        if name not in FIELDS:
            near = difflib.get_close_matches(name, sorted(FIELDS), 1, 0.7)
            hint = f"did you mean {near[0]!r}?" if near else "the fields are in Parley's app/wire/README.md"
            raise TypeError(f"ask: {name!r} is no field of a request; {hint}")
