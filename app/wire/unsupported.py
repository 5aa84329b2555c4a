"""Parameters of OpenAI's and vLLM's APIs that would change an answer and are not supported on `requests`.

Unknown fields of a record are ignored; these are refused by name, because a sender that sets one expects another
answer. A value that asks for nothing is accepted. The gateway supports some of them by translating them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from app.wire.json_codec import without_mark

_NULL = msgspec.Raw(b"null")
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
    fields = _DECODER.decode(without_mark(record))
    names = (name for name in fields if name in UNSUPPORTED and not is_neutral(name, fields[name]))
    return next(names, None) or _schema_beside_type(fields.get("response_format", _NULL))


def _schema_beside_type(form: msgspec.Raw) -> str | None:
    """The name of a schema that would be skipped as an unknown field, so that the answer would not follow it."""
    schema = _NULL if form == _NULL else _DECODER.decode(form).get("schema", _NULL)
    return None if schema == _NULL else "response_format.schema"


_DECODER = msgspec.json.Decoder(dict[str, msgspec.Raw])
