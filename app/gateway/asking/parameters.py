"""Every parameter of OpenAI's and vLLM's APIs, and what the gateway does with it.

A parameter is honoured, ignored because it cannot change the answer, or refused by name. A refused parameter with a
neutral value, one that asks for nothing, is accepted. The reply's header `X-Parley-Ignored` names the parameters that
had no effect, including unknown ones, with the one that is probably meant: `max_toks (did you mean max_tokens?)`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import msgspec

from app.gateway.edge.errors import invalid
from app.process.near_names import with_hints
from app.wire.codec import UNSUPPORTED, is_neutral

IGNORED_HEADER = "X-Parley-Ignored"
_UNPRINTABLE = re.compile(r"[^\x20-\x7e]")
_LONGEST_HEADER = 1000

IGNORED: Mapping[str, str] = MappingProxyType(
    {
        "cache_salt": "computed prompts are never shared between users",
        "disable_any_whitespace": "constrained JSON has no free whitespace",
        "guided_decoding_backend": "there is one",
        "guided_whitespace_pattern": "constrained JSON has no free whitespace",
        "include_reasoning": "the reply has the reasoning apart from its text",
        "length_penalty": "it belongs to beam search",
        "prediction": "a hint for speed",
        "prompt_cache_key": "a hint for speed",
        "prompt_cache_options": "a hint for speed",
        "prompt_cache_retention": "a hint for speed",
        "request_id": "the gateway creates it; see the header X-Request-Id",
        "safety_identifier": "a label",
        "service_tier": "there is one",
        "spaces_between_special_tokens": "answers contain no special tokens",
        "truncation": "history loses its oldest turns",
    }
)


def check_parameters(given: Mapping[str, msgspec.Raw], honoured: Iterable[str]) -> list[str]:
    """The names that have no effect; raises `ApiError` for one that would change the answer and is not supported."""
    known = set(honoured)
    for name, raw in given.items():
        if name in UNSUPPORTED and name not in known and not is_neutral(name, raw):
            raise invalid(name, "is not supported")
    vain = [
        name for name, raw in given.items() if name not in known and name not in UNSUPPORTED and bytes(raw) != b"null"
    ]
    unknown = [name for name in vain if name not in IGNORED]
    return [*(name for name in vain if name in IGNORED), *with_hints(unknown, known)]


def ignored_header(ignored: Sequence[str]) -> dict[str, str]:
    """The header that names what had no effect, cut to a length that clients accept; none if all had."""
    names = ", ".join(name[:_LONGEST_HEADER] for name in ignored[:_LONGEST_HEADER])[:_LONGEST_HEADER]
    return {IGNORED_HEADER: _UNPRINTABLE.sub("?", names)} if names else {}
