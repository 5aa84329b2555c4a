"""The reader of `tokens` on a real broker."""

from __future__ import annotations

import asyncio
import time

import msgspec
import pytest
from aiokafka import AIOKafkaProducer

from app.kafka.clients import KafkaUnusableError, producer
from app.reader import AtOffsets, AtTime, Edge, Position, TokenReader, Update
from app.settings import Settings
from app.wire.codec import WireFormat, encode
from app.wire.event import EventType, TokenEvent
from app.wire.request import Request
from models.interface.generation import FinishReason
from tests.integration.scripted_worker import scripted_worker

PARTITION = 2


def request(prompt: str, number: int = 1) -> Request:
    return Request(request_id=f"r-{number}", user_id="ann", prompt=prompt)


def text_of(updates: list[Update]) -> str:
    return "".join(update.text for update in updates)


def reader(settings: Settings, position: Position = Edge.END) -> TokenReader:
    return TokenReader(settings.cluster, settings.topic("tokens"), position=position)


@pytest.mark.parametrize("wire_format", WireFormat)
async def test_answer_is_followed_to_its_end(settings: Settings, wire_format: WireFormat) -> None:
    settings = settings.model_copy(update={"wire_format": wire_format})
    async with scripted_worker(settings) as worker, reader(settings) as tokens:
        following = tokens.follow("ann", "r-1")
        other = tokens.follow("ann", "r-2")
        await worker.answer(request("one two", 2), PARTITION)
        await worker.answer(request("three"), PARTITION)
        updates = [update async for update in following]
        assert text_of(updates) == "three "
        assert [update.event.type for update in updates] == [EventType.NOTICE, EventType.TOKEN, EventType.DONE]
        assert text_of([update async for update in other]) == "one two "


async def test_late_follower_is_told_what_was_read_before(settings: Settings) -> None:
    async with scripted_worker(settings) as worker, reader(settings, Edge.BEGINNING) as tokens:
        await worker.answer(request("one two"), PARTITION)
        assert text_of([update async for update in tokens.follow("ann", "r-1")]) == "one two "
        assert text_of([update async for update in tokens.follow("ann", "r-1")]) == "one two "


async def test_position_decides_what_is_seen(settings: Settings) -> None:
    async with scripted_worker(settings) as worker:
        await worker.answer(request("old", 1), PARTITION)
        await asyncio.sleep(0.05)
        between = int(time.time() * 1000)
        await asyncio.sleep(0.05)
        middle = await worker.fence(PARTITION)
        await worker.answer(request("new", 2), PARTITION)
        positions: list[tuple[Position, set[str]]] = [
            (Edge.BEGINNING, {"r-1", "r-2", "r-3"}),
            (AtTime(between), {"r-2", "r-3"}),
            (AtTime(between + 3_600_000), {"r-3"}),
            (AtOffsets({PARTITION: middle}), {"r-2", "r-3"}),
            (AtOffsets({}), {"r-3"}),
            (Edge.END, {"r-3"}),
        ]
        readers = [reader(settings, position) for position, _ in positions]
        for one in readers:
            await one.start()
        await worker.answer(request("last", 3), PARTITION)
        for one, (_, expected) in zip(readers, positions, strict=True):
            async for _ in one.follow("ann", "r-3"):
                pass
            assert {request_id for _, request_id in one.rule.answers} == expected
            await one.stop()


async def test_fence_of_an_aborted_transaction_is_not_seen(settings: Settings) -> None:
    async with scripted_worker(settings) as worker, reader(settings) as tokens:
        await _abort_fence(settings)
        epoch = await worker.fence(PARTITION)
        await worker.answer(request("hello"), PARTITION)
        assert text_of([update async for update in tokens.follow("ann", "r-1")]) == "hello "
        assert tokens.rule.epochs[PARTITION] > epoch
        assert tokens.rule.dropped.late == 0


async def _abort_fence(settings: Settings) -> None:
    owner = AIOKafkaProducer(**settings.cluster.options(), transactional_id=settings.topic("owner"))
    await owner.start()
    await owner.begin_transaction()
    value, _ = encode(TokenEvent(type=EventType.FENCE))
    await owner.send_and_wait(settings.topic("tokens"), value, partition=PARTITION)
    await owner.abort_transaction()
    await owner.stop()


async def test_late_words_of_a_former_owner_are_left_out(settings: Settings) -> None:
    async with scripted_worker(settings) as worker, reader(settings) as tokens:
        former, new = await worker.fence(PARTITION), await worker.fence(PARTITION)
        event = TokenEvent(type=EventType.TOKEN, request_id="r-1", user_id="ann", index=0, tokens=(1,), text="true")
        late = msgspec.structs.replace(event, text="late", epoch=former)
        done = msgspec.structs.replace(
            event, type=EventType.DONE, index=1, tokens=None, text=None, epoch=new, finish_reason=FinishReason.STOP
        )
        for sent in (late, msgspec.structs.replace(event, epoch=new), late, done):
            await worker.say(PARTITION, sent)
        assert text_of([update async for update in tokens.follow("ann", "r-1")]) == "true"
        assert tokens.rule.dropped.late == 2


async def test_record_that_cannot_be_read_is_logged_and_left_out(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    async with scripted_worker(settings) as worker, reader(settings) as tokens:
        bad = producer(settings.cluster)
        await bad.start()
        await bad.send_and_wait(settings.topic("tokens"), b"\xff", partition=PARTITION)
        await bad.stop()
        await worker.answer(request("hello"), PARTITION)
        assert text_of([update async for update in tokens.follow("ann", "r-1")]) == "hello "
    assert "skipped: invalid_request: not UTF-8" in caplog.text


async def test_topic_that_is_not_there_is_told_and_not_created(settings: Settings) -> None:
    for _ in range(2):
        with pytest.raises(KafkaUnusableError, match="'nowhere' does not exist: create it with `parley topics create`"):
            await TokenReader(settings.cluster, "nowhere").start()


async def test_follower_that_leaves_is_forgotten(settings: Settings) -> None:
    async with scripted_worker(settings) as worker, reader(settings) as tokens:
        leaving, staying = tokens.follow("ann", "r-1"), tokens.follow("ann", "r-1")
        leaving.close()
        await worker.answer(request("hello"), PARTITION)
        assert [update async for update in leaving] == []
        assert text_of([update async for update in staying]) == "hello "
        assert tokens._followers == {}
