from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, MessageSizeTooLargeError
from aiokafka.structs import RecordMetadata

from app.delivery.commits.commit import LostError
from app.delivery.record import Outgoing
from app.delivery.resume.pace import LONGEST_S, TokenPace
from app.delivery.resume.tokens import EventTooLargeError, TokenLog
from app.kafka.broker_clock import BrokerClock
from app.wire.codec import decode
from app.wire.event import EventType, TokenEvent
from models.interface.generation import Delta, End, FinishReason, Usage
from models.interface.token_stream import TokenStream
from tests.virtual_time import in_virtual_time

EVENT = TokenEvent(type=EventType.TOKEN, request_id="r", user_id="u", conversation_id="c", index=0, tokens=(1,))


class Producer:
    def __init__(self) -> None:
        self.sent: list[tuple[TokenEvent, asyncio.Future[Any]]] = []
        self.places: list[Any] = []

    async def send(self, topic: str, value: bytes, **options: Any) -> asyncio.Future[Any]:
        self.places.append((topic, options["partition"], options["key"], options["headers"]))
        await asyncio.sleep(0)
        delivery = asyncio.get_running_loop().create_future()
        self.sent.append((decode(TokenEvent, value), delivery))
        return delivery

    def deliver(self, offset: int) -> None:
        for _, delivery in self.sent:
            if not delivery.done():
                delivery.set_result(RecordMetadata("tokens", 0, None, offset, 0, 0, -1))


def log_on(producer: Producer, failures: list[BaseException] | None = None, pace: TokenPace | None = None) -> TokenLog:
    found = failures if failures is not None else []
    return TokenLog(
        cast(AIOKafkaProducer, producer),
        "tokens",
        0,
        wire_format="json",
        on_failure=found.append,
        clock=BrokerClock(),
        pace=pace or TokenPace(),
    )


async def test_nothing_is_said_before_the_fence_and_everything_under_its_epoch() -> None:
    producer = Producer()
    log = log_on(producer)
    sending = asyncio.ensure_future(log.send(EVENT, b"u"))
    await asyncio.sleep(0)
    assert not producer.sent
    log.open(17)
    await sending
    assert producer.sent[0][0].epoch == 17
    assert log.position == 18


async def test_a_hold_waits_for_what_is_on_its_way_and_keeps_back_what_comes() -> None:
    producer = Producer()
    log = log_on(producer)
    log.open(1)
    await log.send(EVENT, b"u")
    sending = asyncio.ensure_future(log.send(EVENT, b"u"))
    await asyncio.sleep(0)  # half way into the producer
    hold = asyncio.ensure_future(log.hold())
    late = asyncio.ensure_future(log.send(EVENT, b"u"))
    for _ in range(5):
        await asyncio.sleep(0)
    assert sending.done()
    assert not hold.done()
    assert len(producer.sent) == 2
    producer.deliver(offset=5)
    await hold
    assert not late.done()
    log.open(9)
    await late
    assert [event.epoch for event, _ in producer.sent] == [1, 1, 9]


async def test_a_hold_right_after_an_opening_lets_nothing_slip_through() -> None:
    producer = Producer()
    log = log_on(producer)
    waiting = asyncio.ensure_future(log.send(EVENT, b"u"))
    await asyncio.sleep(0)
    log.open(1)
    await log.hold()
    for _ in range(5):
        await asyncio.sleep(0)
    assert not producer.sent
    log.open(9)
    await waiting
    assert producer.sent[0][0].epoch == 9


async def test_position_is_behind_the_newest_that_was_delivered() -> None:
    producer = Producer()
    log = log_on(producer)
    log.open(1)
    await log.send(EVENT, b"u")
    assert log.position == 2
    producer.deliver(offset=40)
    await asyncio.sleep(0)
    assert log.position == 41


async def test_a_failed_delivery_is_told_and_fails_the_hold() -> None:
    producer, failures = Producer(), []
    log = log_on(producer, failures)
    log.open(1)
    await log.send(EVENT, b"u")
    hold = asyncio.ensure_future(log.hold())
    await asyncio.sleep(0)
    producer.sent[0][1].set_exception(KafkaError("gone"))
    with pytest.raises(KafkaError):
        await hold
    assert len(failures) == 1


async def test_event_goes_to_its_partition_under_its_key_with_the_trace_and_the_brokers_time() -> None:
    producer = Producer()
    log = log_on(producer)
    log.open(1)
    await log.send(EVENT, b"u", [("traceparent", b"00-1")])
    assert producer.places == [("tokens", 0, b"u", [("traceparent", b"00-1")])]
    assert producer.sent[0][0].timestamp == pytest.approx(log.now(), abs=60_000)


async def test_answers_wait_for_deliveries_while_the_worker_has_many_undelivered_events() -> None:
    producer, pace = Producer(), TokenPace(busy_at=3)
    one, other = log_on(producer, pace=pace), log_on(producer, pace=pace)
    one.open(1)
    other.open(1)
    await one.send(EVENT, b"u")
    await one.pause(await one.send(EVENT, b"u"))
    last = await other.send(EVENT, b"u")
    pauses = [asyncio.create_task(log.pause(last)) for log in (one, other)]
    await asyncio.sleep(0)
    assert not any(pause.done() for pause in pauses)
    producer.deliver(offset=5)
    await asyncio.gather(*pauses)
    assert pace.undelivered == 0
    assert not pace.is_behind


@in_virtual_time
async def test_window_holds_back_nothing_once_the_model_has_ended() -> None:
    producer, pace = Producer(), TokenPace(busy_rate=1)
    log, loop = log_on(producer, pace=pace), asyncio.get_running_loop()
    log.open(1)
    pace.count(5000)
    last, stream, began = await log.send(EVENT, b"u"), TokenStream(lambda *_: None), loop.time()
    pause = asyncio.create_task(log.pause(last, stream))
    await asyncio.sleep(LONGEST_S / 5)
    stream.push(Delta(1, (2,), " more"))
    await asyncio.sleep(LONGEST_S / 5)
    assert not pause.done()
    stream.push(End(2, FinishReason.STOP, Usage(1, 2)))
    await pause
    assert loop.time() - began == pytest.approx(LONGEST_S * 2 / 5)


async def test_events_that_fail_or_are_cancelled_are_no_longer_undelivered() -> None:
    producer, pace = Producer(), TokenPace()
    log = log_on(producer, pace=pace)
    log.open(1)
    failed, cancelled = await log.send(EVENT, b"u"), await log.send(EVENT, b"u")
    failed.set_exception(KafkaError("gone"))
    cancelled.cancel()
    await asyncio.sleep(0)
    assert pace.undelivered == 0


async def test_events_that_are_never_delivered_do_not_keep_the_worker_busy_after_their_ownership() -> None:
    producer, pace = Producer(), TokenPace()
    log = log_on(producer, pace=pace)
    log.open(1)
    await log.send(EVENT, b"u")
    late = await log.send(EVENT, b"u")
    log.close()
    assert pace.undelivered == 0
    late.set_exception(KafkaError("gone"))
    await asyncio.sleep(0)
    assert pace.undelivered == 0


async def test_event_that_no_record_can_hold_is_its_answers_fault_alone() -> None:
    class Small(Producer):
        async def send(self, topic: str, value: bytes, **options: Any) -> asyncio.Future[Any]:
            raise MessageSizeTooLargeError

    failures: list[BaseException] = []
    log = log_on(Small(), failures)
    log.open(1)
    with pytest.raises(EventTooLargeError):
        await log.send(EVENT, b"u")
    assert failures == []


@pytest.mark.parametrize("error", [KafkaError("gone"), AssertionError(), OSError(), TimeoutError()])
async def test_producer_that_fails_ends_the_ownership_and_blames_no_request(error: Exception) -> None:
    class Broken(Producer):
        async def send(self, topic: str, value: bytes, **options: Any) -> asyncio.Future[Any]:
            raise error

    failures: list[BaseException] = []
    log = log_on(Broken(), failures)
    log.open(1)
    with pytest.raises(LostError):
        await log.send(EVENT, b"u")
    assert failures == [error]


async def test_deliveries_are_lost_if_any_is_also_if_the_last_one_is_made() -> None:
    producer = Producer()
    log = log_on(producer, list[BaseException]())
    log.open(1)
    deliveries = [await log.send(EVENT, b"u") for _ in range(3)]
    waiting = asyncio.create_task(log.delivered(deliveries))
    await asyncio.sleep(0)
    producer.sent[2][1].set_result(RecordMetadata("tokens", 0, None, 7, 0, 0, -1))
    producer.sent[0][1].set_exception(KafkaError("gone"))
    await asyncio.sleep(0)
    assert not waiting.done(), "one is on its way"
    producer.sent[1][1].set_result(RecordMetadata("tokens", 0, None, 6, 0, 0, -1))
    (lost,) = await asyncio.gather(waiting, return_exceptions=True)
    assert isinstance(lost, LostError)


async def test_event_that_only_the_broker_refuses_names_its_request() -> None:
    producer, failures, refused = Producer(), list[BaseException](), list[Any]()
    log = log_on(producer, failures)
    log._on_refused = refused.append
    log.open(1)
    delivery = await log.send(EVENT, b"u")
    producer.sent[0][1].set_exception(MessageSizeTooLargeError())
    with pytest.raises(LostError):
        await log.delivered([delivery])
    await asyncio.sleep(0)
    assert refused == [("u", "r")]
    assert len(failures) == 1


BESIDE = Outgoing("theirs", b"u", b"{}", by_key=True)


class Beside(Producer):
    """Of records for topics of others."""

    async def send(self, topic: str, value: bytes, **options: Any) -> asyncio.Future[Any]:
        self.places.append((topic, options["partition"], options["key"]))
        delivery: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.sent.append((EVENT, delivery))
        return delivery


async def test_what_goes_beside_events_waits_for_the_fence_and_says_its_epoch() -> None:
    producer, epochs = Beside(), list[int]()
    log = log_on(producer)

    def records_of(epoch: int) -> list[Outgoing]:
        epochs.append(epoch)
        return [BESIDE]

    sending = asyncio.ensure_future(log.send_beside(records_of, ("u", "r")))
    await asyncio.sleep(0)
    assert not producer.sent
    log.open(17)
    (delivery,) = await sending
    assert (epochs, producer.places) == ([17], [("theirs", None, b"u")])
    producer.deliver(offset=1000)
    await delivery
    assert log.position == 18, "their offsets are of another topic"


async def test_a_lost_record_beside_ends_the_ownership_and_one_that_is_refused_names_its_request() -> None:
    failures: list[BaseException] = []
    refused: list[Any] = []
    producer = Beside()
    log = log_on(producer, failures)
    log._on_refused = refused.append
    log.open(1)
    for error in (KafkaError("away"), MessageSizeTooLargeError()):
        (delivery,) = await log.send_beside(lambda _: [BESIDE], ("u", "r"))
        delivery.set_exception(error)
        with pytest.raises(LostError if isinstance(error, KafkaError) else KafkaError):
            await log.delivered([delivery])
        await asyncio.sleep(0)
    assert len(failures) == 2
    assert refused == [("u", "r")]
