"""What a record may cost in memory, against what Python really takes for it."""

from __future__ import annotations

import json
import tracemalloc

import msgspec
import pytest

from app.delivery.record import REQUESTS, Record
from app.kafka.reading import UnreadableRecord
from app.wire.codec import decode
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
        request_of(prompt="Hi", response_format=SCHEMA_BOMB),
        request_of(prompt="Hi", response_format={"type": "json_schema", "json_schema": {"schema": PAIRS}}),
        request_of(messages=[{"role": "user", "content": "a"}] * 2048),
        request_of(messages=[{"role": "user", "content": f"b{number}"} for number in range(2048)]),
        request_of(prompt="Hi", metadata={"a": [{}] * 300_000}),
        request_of(prompt="Hi", metadata={"a": [[]] * 300_000}),
        request_of(prompt="Hi", logit_bias={str(number): 1.5 for number in range(1024)}),
        request_of(prompt="Hi", stop=["ab"] * 16),
    ],
    ids=lambda value: f"{len(value)} bytes",
)
def test_a_record_costs_no_more_than_it_is_charged(value: bytes) -> None:
    record = Record(REQUESTS, 0, 0, 0, b"nina", value)
    decode(Request, value)  # what is made once and kept does not count
    tracemalloc.start()
    try:
        request = decode(Request, value)
        decoded, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert msgspec.json.encode(request)
    assert decoded + len(value) <= record.cost


def test_a_tombstone_costs_something() -> None:
    assert Record(REQUESTS, 0, 0, 0, b"nina", None).cost > 0


def test_a_record_that_cannot_be_decoded_stays_so_wherever_it_is_read() -> None:
    consumed = UnreadableRecord("requests", 1, 5, 7, 0, b"nina", b"{}", None, 4, 2, (), cause="its header")
    record = Record.of(REQUESTS, consumed)
    assert record == Record(REQUESTS, 1, 5, 7, b"nina", b"{}", unreadable="its header")
    with pytest.raises(WireError, match="its header"):
        record.check_readable()
