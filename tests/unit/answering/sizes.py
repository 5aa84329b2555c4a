"""Sizes of what a request leaves, as the batches of aiokafka that hold it."""

from __future__ import annotations

from collections.abc import Iterator

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from hypothesis import strategies as st

from app.answering.run import Run
from app.delivery.commits.audit_chain import extend
from app.delivery.commits.commit import Commit
from app.delivery.record import Outgoing
from app.settings import Settings
from app.wire.event import TokenEvent
from app.wire.json_codec import json_bytes
from app.wire.record_size import MAX_RECORD_BYTES
from models.interface.chat import ModelCall
from models.interface.generation import Delta, End, FinishReason, Usage
from models.tools.parser import CallDelta
from tables.records import AuditHead
from tests.examples import examples
from tests.unit.delivery.inflight_requests import ASKED_AT

NOW = ASKED_AT + 5000
LETTERS = ("x", '"', "\x01", "\u00e9", "\u20ac", "\U0001f600", "\u2028")
USAGE = Usage(2**31, 2**31, 2**31)
letters = st.sampled_from(LETTERS)
formats = st.sampled_from(("json", "protobuf"))
many = examples(0.25)


def sizes(commit: Commit, given_settings: Settings) -> Iterator[int]:
    """Of each record of the commit, as a batch of its own."""
    _, links = extend(AuditHead(2**60, "f" * 64), commit.audit, given_settings)
    rows = (Outgoing("changelog", row.key, row.value) for row in commit.changes)
    for record in (*commit.outputs, *links, *rows):
        builder = DefaultRecordBatchBuilder(2, 0, 1, 1, 1, 1, 1 << 24)
        assert builder.append(0, NOW, record.key, record.value, list(record.headers)) is not None
        yield len(builder.build())


def check(commit: Commit, given_settings: Settings) -> None:
    assert max(sizes(commit, given_settings), default=0) <= MAX_RECORD_BYTES


def settings_of(wire_format: str) -> Settings:
    return Settings(_env_file=None, wire_format=wire_format)


def as_long_as(letter: str, most: int) -> str:
    """Text of that letter, of at most so many bytes in JSON."""
    return letter * (most // json_bytes(letter))


async def answered(run: Run, letter: str, calls: int = 0) -> TokenEvent:
    """The end of the answer that goes on until it has no room."""
    answer = run.answer
    for number in range(calls):
        await answer.write(Delta(answer.index, (1,), "", calls=(CallDelta(number, "n" * 64, "{}"),)))
    text = as_long_as(letter, 8192)
    while answer.has_room_for(delta := Delta(answer.index, (1,), text)):
        await answer.write(delta)
    made = [ModelCall("n" * 64, "{}", f"c{number}") for number in range(calls)]
    return await answer.done(End(0, FinishReason.LENGTH, USAGE, calls=tuple(made)))
