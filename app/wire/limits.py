"""The sizes and forms that names and numbers of a record may have."""

from __future__ import annotations

import re
from typing import TypeGuard

import msgspec

MAX_DEPTH = 32
"""Levels of nesting of a record, itself included: Protobuf's own limit of 100 leaves this for `metadata`."""
MAX_BRACKETS = 25_000
"""Objects and lists of a record or body. An empty one takes 2 bytes as JSON and 64 as a Python object, so a limit in
bytes bounds neither memory nor the time for which the event loop waits.
"""
MAX_DIGITS = 300
"""Of a number in JSON: fewer than the largest float has."""
MAX_STOP_STRINGS = 16
MAX_STOP_LENGTH = 256
MAX_NAME_LENGTH = 256
MAX_USER_LENGTH = 128
MAX_TOP_LOGPROBS = 20
MAX_RECALL = 20
MAX_BEST_OF = 8
MAX_STOP_WINDOW = 1024
MAX_PROMPT_LOGPROBS = 4096  # entries of one event, which is one record
MAX_LOGIT_BIASES = 1024
MAX_LOGIT_BIAS = 100
MAX_PENALTY = 2
MIN_REPETITION_PENALTY = 0.01  # logits are divided by it
MAX_CHOICES = 1024
MAX_CHOICE_LENGTH = 4096
MAX_REGEX_LENGTH = 4096
MAX_SCHEMA_BYTES = 65536
MAX_METADATA_BYTES = 16384
MAX_TEMPLATE_VALUES_BYTES = 4096
MAX_MESSAGES = 2048
MAX_PRIVATE_VALUES = 4096
MAX_PRIVATE_BYTES = 192 << 10
"""Of the private values of one request, as JSON: they stand in its plan, beside turns that are recalled."""
MAX_TOKEN_ID = 2**31 - 1
MAX_TOOLS = 128
MAX_TOOL_CALLS = 128
MAX_TOOL_TIMEOUT_MS = 3_600_000
TOOL_TIMEOUT_MS = 60_000  # of requests that name none
TOOL_ROUNDS = 8
"""How often one answer may call tools over Kafka."""
INT64 = range(-(2**63), 2**63)
MAX_TIME_MS = 253_402_300_799_999
"""The end of the year 9999: later times are none for calendars."""
MAX_COUNT = 2**31 - 1

MAX_RECORD_BYTES = 1 << 20
"""Of a record on any topic; `max.message.bytes`."""
MAX_TURN_BYTES = MAX_RECORD_BYTES - (16 << 10)
"""For prompt and answer of a turn together, as JSON; the rest is for its other fields, key and headers."""
MAX_QUESTION_BYTES = MAX_TURN_BYTES // 2
MAX_KEPT_BYTES = 3 * MAX_TURN_BYTES // 4
"""Of what a turn keeps beside the answer: the question, its context, calls, results and private values."""
MAX_MESSAGE_LENGTH = 1000
"""Characters of an error's message: it may quote invalid input, which may be a megabyte."""

_TOOL_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_REQUEST_ID = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._:-]{1,64}")
REQUEST_ID_FORM = "1-64 of A-Z a-z 0-9 . _ : -, and not . or .."
"""Dots alone would name another resource in a URL."""


def is_request_id(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and _REQUEST_ID.fullmatch(value) is not None


def is_tool_name(value: str) -> bool:
    return _TOOL_NAME.fullmatch(value) is not None


def is_user_id(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and 1 <= len(value) <= MAX_USER_LENGTH and is_text(value)


def is_conversation_id(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and len(value) <= MAX_NAME_LENGTH and is_text(value)


def shortened(message: str) -> str:
    """The message of an error, cut to `MAX_MESSAGE_LENGTH`."""
    return message if len(message) <= MAX_MESSAGE_LENGTH else f"{message[: MAX_MESSAGE_LENGTH - 3]}..."


def json_bytes(text: str) -> int:
    """The length of the text within a JSON string."""
    return len(msgspec.json.encode(text)) - 2


def is_text(value: str) -> bool:
    """Whether it has no lone surrogate: so Python keeps a byte that is not UTF-8."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
