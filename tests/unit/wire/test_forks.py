"""The field `from` of a request: both formats, and what is refused of it."""

from __future__ import annotations

from typing import Any

import pytest

from app.wire.codec import WireFormat, decode, encode
from app.wire.error import WireError
from app.wire.request import Fork, Message, Request, Role
from app.wire.validation import validate_request

OTHER = {"request_id": "r7", "conversation_id": "c1"}


def asked(fork: dict[str, Any], **fields: Any) -> Request:
    return Request(request_id="f1", user_id="u", conversation_id="c2", fork=Fork(**{**OTHER, **fork}), **fields)


@pytest.mark.parametrize("wire_format", WireFormat)
@pytest.mark.parametrize(
    "request_",
    [
        asked({}, prompt="And now?"),
        asked({"index": 0}),
        asked({"index": 2, "tokens": (5, 0), "text": "wo"}, prompt="x"),
    ],
)
def test_a_fork_survives_and_is_valid(request_: Request, wire_format: WireFormat) -> None:
    again = decode(Request, *encode(request_, wire_format))
    assert again == request_
    validate_request(again, b"u", max_prompt_bytes=1000)


def test_its_name_on_the_wire_is_from() -> None:
    value, _ = encode(asked({"index": 0}))
    assert value.endswith(b'"conversation_id":"c2","from":{"request_id":"r7","conversation_id":"c1","index":0}}')


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (asked({}), "exactly one of prompt"),
        (asked({"request_id": "no id"}, prompt="x"), "from.request_id: must be"),
        (asked({"conversation_id": "c2"}, prompt="x"), "from: begins a conversation"),
        (asked({"tokens": (1,)}, prompt="x"), "from.tokens: need from.index"),
        (asked({"index": 2, "tokens": (1,)}), "from.tokens: has 1 ids, and from.index is 2"),
        (asked({"index": 2}), "from.tokens: has 0 ids"),
        (asked({"index": 0, "text": "w"}), "from.text: needs from.tokens"),
        (asked({"index": 1, "tokens": (1,)}, best_of=2), "from.index: excludes best_of"),
        (asked({"index": 2, "tokens": (1, 2)}, max_tokens=1), "from.index: is above max_tokens"),
        (asked({"index": 0}, messages=(Message(Role.USER, "x"),)), "from: excludes messages"),
        (asked({}, prompt="x", raw=True), "from: excludes raw"),
        (asked({}, prompt="x", previous_request_id="r1"), "from: excludes previous_request_id"),
    ],
)
def test_what_is_no_fork_is_refused_in_words(request_: Request, why: str) -> None:
    with pytest.raises(WireError) as refused:
        validate_request(request_, b"u", max_prompt_bytes=1000)
    assert refused.value.message.startswith(why)
    assert refused.value.request_id == "f1"


@pytest.mark.parametrize("wire_format", WireFormat)
def test_what_a_request_replaces_survives_and_is_of_other_requests(wire_format: WireFormat) -> None:
    request = asked({"index": 0}, replaces=("r7", "r8"))
    again = decode(Request, *encode(request, wire_format))
    assert again == request
    validate_request(again, b"u", max_prompt_bytes=1000)
    for wrong in ("f1", "", "a b"):
        with pytest.raises(WireError, match="replaces: must be ids of other requests"):
            validate_request(asked({"index": 0}, replaces=("r7", wrong)), b"u", max_prompt_bytes=1000)
    with pytest.raises(WireError, match="replaces"):
        decode(Request, *encode(asked({"index": 0}, replaces=tuple(f"r{at}" for at in range(101))), wire_format))
