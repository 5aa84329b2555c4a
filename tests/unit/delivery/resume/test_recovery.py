"""Recovery of partial answers from logs of several owners; their late events are no part of the answers."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, cast

from aiokafka import AIOKafkaConsumer, TopicPartition

from app.delivery.accepted import Former, RequestKey
from app.delivery.resume.quarantine import Attempt
from app.delivery.resume.recovery import recover
from app.kafka.reading import UnreadableRecord
from app.reader.rule import Answer, ReaderRule
from app.wire.codec import encode
from app.wire.event import EventType, Notice, Plan, TokenEvent

TP = TopicPartition("tokens", 0)
FENCE = TokenEvent(type=EventType.FENCE)


def word(epoch: int, index: int, request: str = "r") -> TokenEvent:
    return TokenEvent(
        type=EventType.TOKEN, request_id=request, user_id="u", conversation_id="c", index=index, tokens=(index,),
        text=f"{epoch}.{index} ", epoch=epoch,
    )  # fmt: skip


def done(epoch: int, index: int, request: str = "r") -> TokenEvent:
    return TokenEvent(
        type=EventType.DONE, request_id=request, user_id="u", conversation_id="c", index=index, epoch=epoch
    )


@dataclass
class Fetched:
    partition: int
    offset: int
    value: bytes
    headers: tuple = ()


class Reader:
    """Hands out a log two records at a time."""

    def __init__(self, log: list[TokenEvent], unreadable: Collection[int] = ()) -> None:
        self._log = log
        self._unreadable = unreadable
        self._at = 0

    def assign(self, partitions: list[TopicPartition]) -> None:
        assert partitions == [TP]

    async def beginning_offsets(self, _partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {TP: 0}

    def seek(self, _partition: TopicPartition, offset: int) -> None:
        self._at = offset

    async def position(self, _partition: TopicPartition) -> int:
        return self._at

    async def getmany(self, _partition: TopicPartition, timeout_ms: int) -> dict[TopicPartition, list[Any]]:
        await asyncio.sleep(0)
        start, self._at = self._at, min(self._at + 2, len(self._log))
        return {TP: [self._record(offset) for offset in range(start, self._at)]}

    def _record(self, offset: int) -> Fetched | UnreadableRecord:
        value = encode(self._log[offset])[0]
        if offset not in self._unreadable:
            return Fetched(0, offset, value)
        return UnreadableRecord(*TP, offset, 0, 0, None, value, None, -1, len(value), (), cause="its header")


def answers(found: dict[RequestKey, Former]) -> Iterator[tuple[RequestKey, Answer]]:
    return ((key, former.answer) for key, former in found.items() if former.answer is not None)


async def recovered(log: list[TokenEvent], *, start: int, floor: int) -> dict[str, tuple[str, bool]]:
    """What the owner of the log's last record, its fence, recalls."""
    found = await recover(cast(AIOKafkaConsumer, Reader(log)), TP, start=start, floor=floor, fence=len(log) - 1)
    return {request: (answer.text, answer.end is not None) for (_, request), answer in answers(found)}


def seen(log: list[TokenEvent]) -> dict[str, str]:
    """What a reader from the log's beginning shows."""
    rule = ReaderRule()
    for offset, event in enumerate(log):
        rule.read(0, offset, event)
    return {request: answer.text for (_, request), answer in rule.answers.items()}


async def test_an_answer_that_was_begun_is_recalled_as_readers_have_it() -> None:
    log = [FENCE, word(0, 0), word(0, 1), FENCE, word(3, 2), FENCE]
    assert await recovered(log, start=1, floor=0) == {"r": ("0.0 0.1 3.2 ", False)}
    assert seen(log) == {"r": "0.0 0.1 3.2 "}


async def test_a_former_owners_late_words_are_not_recalled() -> None:
    log = [FENCE, word(0, 0), FENCE, word(0, 1), word(2, 1), word(0, 2), FENCE]
    assert await recovered(log, start=1, floor=0) == {"r": ("0.0 2.1 ", False)}


async def test_late_words_of_an_owner_before_the_floor_are_not_recalled() -> None:
    """The owner between them wrote nothing, and the last fence before `start` is not read."""
    log = [FENCE, FENCE, word(0, 0, "other"), word(0, 0), FENCE, FENCE]
    assert await recovered(log, start=2, floor=1) == {}
    assert seen(log) == {}


def notice(epoch: int, code: str, index: int = 0, **details: Any) -> TokenEvent:
    return TokenEvent(
        type=EventType.NOTICE, request_id="r", user_id="u", conversation_id="c", index=index, epoch=epoch,
        notice=Notice(code, "", details or None),
    )  # fmt: skip


async def test_what_cannot_be_decoded_is_no_part_of_an_answer() -> None:
    """As for readers: they skip it, whatever its value is."""
    log = [FENCE, word(0, 0), word(0, 1), word(0, 1, "other"), FENCE]
    reader = cast(AIOKafkaConsumer, Reader(log, unreadable={2, 3}))
    found = await recover(reader, TP, start=0, floor=-1, fence=4)
    assert {request: answer.text for (_, request), answer in answers(found)} == {"r": "0.0 "}


async def noted(log: list[TokenEvent]) -> dict[RequestKey, Former]:
    return await recover(cast(AIOKafkaConsumer, Reader(log)), TP, start=0, floor=-1, fence=len(log) - 1)


async def test_the_last_plan_and_the_last_attempt_are_recalled() -> None:
    log = [FENCE, notice(0, "plan", at=5), notice(0, "attempt", attempt=1), FENCE, notice(3, "attempt", attempt=2)]
    found = await noted([*log, notice(3, "plan", at=9), FENCE])
    assert found == {("u", "r"): Former(plan=Plan(9), attempt=Attempt(2, 0), is_replayed=True)}


async def test_a_former_owners_late_attempt_is_not_recalled() -> None:
    found = await noted([FENCE, FENCE, notice(0, "attempt", attempt=1), FENCE])
    assert found == {}


async def test_a_notice_that_is_not_a_workers_is_left_out() -> None:
    log = [FENCE, notice(0, "attempt", attempt="many"), notice(0, "plan", at="soon"), notice(0, "else", at=3), FENCE]
    found = await noted(log)
    assert not found


async def test_an_end_is_recalled() -> None:
    log = [FENCE, word(0, 0), done(0, 1), FENCE]
    assert await recovered(log, start=0, floor=-1) == {"r": ("0.0 ", True)}


async def test_the_rest_of_an_answer_that_began_before_the_start_is_left_out() -> None:
    log = [FENCE, word(0, 0), word(0, 1), word(0, 0, "s"), FENCE]
    assert await recovered(log, start=2, floor=0) == {"s": ("0.0 ", False)}


async def test_what_stands_behind_the_fence_is_not_recalled() -> None:
    log = [FENCE, word(0, 0), FENCE, word(0, 1)]
    found = await recover(cast(AIOKafkaConsumer, Reader(log)), TP, start=0, floor=-1, fence=2)
    assert [answer.text for _, answer in answers(found)] == ["0.0 "]
