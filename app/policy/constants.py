"""The constants of an intake, judged as the records that it makes of them are judged: by the validation of requests.

A rule between fields, as `tool_choice` needs `tools`, is met by what a record may bring in one of the intake's fields.
Constants are refused if no record with these fields gives a request.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import msgspec

from app.wire import json_codec
from app.wire.codec import PROMPTS, decode
from app.wire.error import WireError
from app.wire.request import Request
from app.wire.validation import prompt_bytes, validate_request

_IDS = {"request_id": "x", "user_id": "x"}
_OF_RECORDS: Mapping[str, Any] = {
    "prompt": "x",
    "messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "x"}],
    "tool_results": [{"tool_call_id": "x", "content": "x"}],
    "prompt_token_ids": [1],
}
"""Prompts that meet every rule that another field may set."""


def constant_mistakes(constants: Mapping[str, Any], fields: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with constants of an intake that fills these fields: of each its type, then its value."""
    given = dict(constants)
    for name, value in constants.items():
        try:
            _read({**_IDS, name: value})
        except msgspec.ValidationError as error:
            yield json_codec.in_words(str(error))
            del given[name]
    fills = {*fields}
    while (why := _refusal(given, fills)) is not None:
        yield why
        about = why.partition(":")[0].partition(".")[0]
        if about not in given:
            return
        del given[about]
        fills.add(about)  # a right value may stand there, so others may need it


def constant_bytes(constants: Mapping[str, Any]) -> int:
    """Bytes of the prompt that the constants are a part of; 0 if they give no request."""
    try:
        return prompt_bytes(_read({**_IDS, **constants}))
    except msgspec.ValidationError:
        return 0


def _refusal(given: Mapping[str, Any], fills: set[str]) -> str | None:
    """Why none of the records that fill these fields gives a request: of the one that brings most."""
    why = None
    for brought in _records(given, fills):
        why = _refused({**given, **brought})
        if why is None:
            return None
    return why


def _records(given: Mapping[str, Any], fills: set[str]) -> Iterator[dict[str, Any]]:
    prompts = [name for name in PROMPTS if name in fills] or ["prompt"]
    choices: list[dict[str, Any]] = [{name: _OF_RECORDS[name]} for name in prompts]
    if any(name in given for name in PROMPTS):
        choices = [{}]
    with_tools = [{"tools": [_tool(given)]}] if "tools" in fills else []
    for prompt, tools in product(choices, [{}, *with_tools]):
        yield prompt | tools


def _tool(given: Mapping[str, Any]) -> dict[str, Any]:
    """A tool of the name that the constants choose, if they do."""
    choice = given.get("tool_choice")
    chosen = choice["function"]["name"] if isinstance(choice, dict) else "x"
    return {"type": "function", "function": {"name": chosen}}


def _refused(fields: Mapping[str, Any]) -> str | None:
    whole = {**_IDS, **fields}
    user = whole["user_id"]
    try:
        # The values as they stand in the file: JSON has no NaN, and would drop it.
        validate_request(_read(whole), user.encode(), max_prompt_bytes=sys.maxsize)
        decode(Request, json_codec.encode(whole))
    except WireError as error:
        return error.message
    except (msgspec.ValidationError, OverflowError) as error:  # an integer that JSON does not hold
        return json_codec.in_words(str(error))
    return None


def _read(fields: Mapping[str, Any]) -> Request:
    """The names of JSON are strings, also where a request has numbers."""
    return msgspec.convert(fields, Request, str_keys=True)
