"""What a record may cost in memory, against what Python really takes for it."""

from __future__ import annotations

import json
import tracemalloc
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from app.delivery.record import REQUESTS, Record
from app.kafka.reading import UnreadableRecord
from app.wire.codec import WireFormat, decode, encode
from app.wire.error import WireError
from app.wire.request import Request

SCHEMA_BOMB = {"type": "json_schema", "json_schema": {"schema": {"enum": [{}] * 16_000}}}
PAIRS = {str(number): {"a": number} for number in range(5_000)}


def request_of(**fields: object) -> bytes:
    return json.dumps({"request_id": "r", "user_id": "nina", **fields}, separators=(",", ":")).encode()


@pytest.mark.parametrize(
    "value",
    [
        request_of(prompt="Hi"),
        request_of(prompt="a" * 60_000),
        request_of(prompt="ä€😀" * 5_000),
        request_of(prompt="a" * 60_000 + "😀"),
        request_of(prompt="a" * 60_000 + "€"),
        request_of(prompt="Hi", response_format=SCHEMA_BOMB),
        request_of(prompt="Hi", response_format={"type": "json_schema", "json_schema": {"schema": PAIRS}}),
        request_of(messages=[{"role": "user", "content": "a"}] * 2048),
        request_of(messages=[{"role": "user", "content": f"b{number}"} for number in range(2048)]),
        request_of(prompt="Hi", metadata={"a": [{}] * 24_000}),
        request_of(prompt="Hi", metadata={"a": [[]] * 24_000}),
        request_of(prompt="Hi", logit_bias={str(number): 1.5 for number in range(1024)}),
        request_of(prompt="Hi", stop=["ab"] * 16),
        request_of(prompt_token_ids=[300_000] * 16_000),
    ],
    ids=lambda value: f"{len(value)} bytes",
)
@pytest.mark.parametrize("wire_format", WireFormat)
def test_a_record_costs_no_more_than_it_is_charged(value: bytes, wire_format: WireFormat) -> None:
    value, headers = encode(decode(Request, value), wire_format)
    record = Record(REQUESTS, 0, 0, 0, b"nina", value, tuple(headers))
    decode(Request, value, headers)  # what is made once and kept does not count
    tracemalloc.start()
    try:
        request = decode(Request, value, headers)
        decoded, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert msgspec.json.encode(request)
    assert decoded + len(value) <= record.cost


@pytest.mark.parametrize("headers", [[("response", b"x" * 900_000)], [("a", b"")] * 100_000, [("x" * 900_000, None)]])
def test_headers_cost_what_they_take(headers: list[tuple[str, bytes | None]]) -> None:
    tracemalloc.start()
    try:
        copied = [(str(name.encode(), "utf-8"), bytes(bytearray(value or b""))) for name, value in headers]
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken <= Record(REQUESTS, 0, 0, 0, b"nina", b"{}", tuple(copied)).cost


def test_a_long_prompt_costs_about_its_bytes_in_both_formats() -> None:
    """Otherwise fewer would be held than there is room for."""
    for wire_format in WireFormat:
        value, headers = encode(decode(Request, request_of(prompt="Hello, all of you! " * 3_000)), wire_format)
        assert Record(REQUESTS, 0, 0, 0, b"nina", value, tuple(headers)).cost < 10 * len(value)


def test_a_tombstone_costs_something() -> None:
    assert Record(REQUESTS, 0, 0, 0, b"nina", None).cost > 0


def test_a_record_that_cannot_be_decoded_stays_so_wherever_it_is_read() -> None:
    consumed = UnreadableRecord("requests", 1, 5, 7, 0, b"nina", b"{}", None, 4, 2, (), cause="its header")
    record = Record.of(REQUESTS, consumed)
    assert record == Record(REQUESTS, 1, 5, 7, b"nina", b"{}", unreadable="its header")
    with pytest.raises(WireError, match="its header"):
        record.check_readable()


def test_a_record_of_very_many_headers_is_refused_without_them() -> None:
    value, headers = b'{"request_id":"r","user_id":"nina","prompt":"hi"}', (("a", b""),) * 300_000
    consumed: Any = SimpleNamespace(partition=0, offset=0, timestamp=0, key=b"nina", value=value, headers=headers)
    record = Record.of(REQUESTS, consumed)
    assert record.headers == ()
    assert record.cost < 10_000
    with pytest.raises(WireError, match="300000 headers") as refusal:
        record.check_readable()
    assert refusal.value.request_id == "r"
