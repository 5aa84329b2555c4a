"""What a server says of the end of an answer, in the words of many APIs."""

from __future__ import annotations

import re

from models.interface.generation import FinishReason
from models.remote.http import ServerMisbehaved

_NONE = frozenset({"", "null", "none", "undefined", "unspecified", "finish_reason_unspecified", "not_complete"})
"""Ollama's and SGLang's older versions, and programs that turn null into a text."""
_WORDS = {
    FinishReason.STOP: """
        stop stopped eos eos_token eos_token_id end end_turn end_of_turn end_of_text stop_sequence stop_token stop_str
        stop_string complete completed done finish finished natural_stop pause_turn
        tool_calls tool_call tool_use function_call
    """,
    FinishReason.LENGTH: """
        length max_length max_tokens max_new_tokens max_completion_tokens max_output_tokens model_length token_limit
        context_length max_context_length context_window_exceeded model_context_window_exceeded limit truncated
    """,
    FinishReason.FILTERED: """
        content_filter content_filtered content_filtering filter filtered safety image_safety recitation refusal
        blocklist blocked prohibited_content spii sensitive moderation guardrail guardrails guardrail_intervened
        error_toxic
    """,
}
_KNOWN = {word: reason for reason, words in _WORDS.items() for word in words.split()}
_FAILED = """
    error failed failure abort aborted cancel canceled cancelled user_cancel interrupted disconnected timeout
    network_error server_error internal_error insufficient_system_resource malformed_function_call
"""
_FAILURES = frozenset(_FAILED.split())
_PLAIN = frozenset({"stop", "length", "content_filter", "tool_calls", "function_call"})
"""OpenAI's words."""
_PRINTABLE = re.compile(r"[\w .:-]{1,40}", re.ASCII)


def reason_of(word: str) -> FinishReason | None:
    """None if the answer goes on. A word that nobody knows ends it like `stop`: that the server has ended it is sure.

    Raises `ServerMisbehaved` if it has failed.
    """
    known = re.sub(r"[\s-]+|(?<=[a-z])(?=[A-Z])", "_", word.strip()).lower()
    if known in _NONE:
        return None
    if known in _FAILURES:
        raise ServerMisbehaved(f"the server ended the answer with {known!r}")
    return _KNOWN.get(known, FinishReason.STOP)


def oddity_of(word: str) -> str | None:
    """How to name a word in the log that is none of OpenAI's; a server could put any text there."""
    if word in _PLAIN:
        return None
    if not word:
        return "an empty finish_reason"
    return f"finish_reason {word!r}" if _PRINTABLE.fullmatch(word) else "a finish_reason of another form"
