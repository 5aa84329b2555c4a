from __future__ import annotations

import asyncio
import dataclasses
from contextlib import suppress
from typing import cast

from aiokafka.errors import KafkaError
from aiokafka.structs import RecordMetadata

from app.delivery.commits.commit import LostError
from app.delivery.resume.answer_log import AnswerLog
from app.delivery.resume.quarantine import write_attempt
from app.delivery.resume.tokens import TokenLog
from app.wire.event import EventType, TokenEvent
from models.interface.generation import Delta, End, FinishReason, TokenLogprob, Usage
from models.prompts.builder import BuiltPrompt
from models.served.paced import paced
from tests.unit.delivery.inflight_requests import inflight_of

MODEL = paced(1.0)


class SlowLog:
    """Takes events; their deliveries are resolved by the test. After tokens it pauses for their delivery if it
    `pauses`.
    """

    def __init__(self, *, pauses: bool = False) -> None:
        self.pauses = pauses
        self.events: list[TokenEvent] = []
        self.deliveries: list[asyncio.Future[RecordMetadata]] = []

    def now(self) -> int:
        return 1000

    async def send(self, event: TokenEvent, *_: object) -> asyncio.Future[RecordMetadata]:
        self.events.append(event)
        self.deliveries.append(asyncio.get_running_loop().create_future())
        return self.deliveries[-1]

    async def pause(self, delivery: asyncio.Future[RecordMetadata], _stream: object) -> None:
        if self.pauses:
            await asyncio.shield(delivery)

    delivered = staticmethod(TokenLog.delivered)

    def deliver(self) -> None:
        for delivery in self.deliveries:
            if not delivery.done():
                delivery.set_result(RecordMetadata("tokens", 0, None, 1, 0, 0, -1))


def answer_on(log: SlowLog) -> AnswerLog:
    return AnswerLog(cast(TokenLog, log), inflight_of().accepted, (), MODEL, MODEL)


def text_of(token: int, *, begins: bool = False) -> str:
    """As a SentencePiece decoder has it: the space before the first word is not part of the text."""
    return "<s>" if token == 1 else f"{'' if begins else ' '}w{token}"


async def test_the_texts_of_log_probabilities_are_those_of_the_answer() -> None:
    log = SlowLog()
    model = dataclasses.replace(MODEL, text_of=text_of, unwritten=frozenset({1}))
    answer = AnswerLog(cast(TokenLog, log), inflight_of().accepted, (), model, model)
    scores = tuple(TokenLogprob(token, -1.0, ((1, -2.0),)) for token in (7, 1, 8))
    await answer.write(Delta(0, (7, 1, 8), "w7 w8", scores))
    await answer.write(Delta(3, (9,), " w9", (TokenLogprob(9, -1.0),)))
    logprobs = [one for event in log.events for one in event.logprobs or ()]
    assert [one.text for one in logprobs] == ["w7", "", " w8", " w9"]
    assert [rival.text for one in logprobs for rival in one.top] == ["<s>"] * 3


async def test_the_first_token_of_a_raw_prompt_has_its_text_on_the_first_event() -> None:
    log = SlowLog()
    model = dataclasses.replace(MODEL, text_of=text_of, unwritten=frozenset({1}))
    answer = AnswerLog(cast(TokenLog, log), inflight_of(raw=True, prompt_logprobs=0).accepted, (), model, model)
    answer.show_start(BuiltPrompt((1, 7, 8), 0, "digest"))
    scores = tuple(TokenLogprob(token, -1.0) for token in (7, 8))
    await answer.write(Delta(0, (9,), "w9", prompt_logprobs=scores))
    await answer.write(Delta(1, (9,), " w9"))
    assert [event.prompt_start for event in log.events] == ["<s>", None]
    assert [one.text for one in log.events[0].prompt_logprobs or ()] == ["w7", " w8"]


async def ending(answer: AnswerLog) -> asyncio.Task[TokenEvent]:
    await answer.write(Delta(0, (7,), "word"))
    end = asyncio.create_task(answer.done(End(1, FinishReason.LENGTH, Usage(3, 1))))
    await asyncio.sleep(0)
    return end


async def test_attempt_that_is_cut_short_leaves_the_answer_its_deliveries() -> None:
    log = SlowLog()
    answer = answer_on(log)
    end = await ending(answer)
    with suppress(TimeoutError):
        async with asyncio.timeout(0):
            await write_attempt(cast(TokenLog, log), inflight_of(), 0)
    assert not any(delivery.cancelled() for delivery in log.deliveries)
    assert not end.done()
    log.deliver()
    assert (await end).type is EventType.DONE


async def test_answer_that_is_cut_short_leaves_an_attempt_its_deliveries() -> None:
    log = SlowLog()
    answer = answer_on(log)
    end = await ending(answer)
    attempt = asyncio.create_task(write_attempt(cast(TokenLog, log), inflight_of(), 0))
    await asyncio.sleep(0)
    end.cancel()
    await asyncio.gather(end, return_exceptions=True)
    log.deliver()
    await attempt


async def test_end_fails_where_a_delivery_before_it_failed() -> None:
    log = SlowLog()
    end = await ending(answer_on(log))
    log.deliveries[0].set_exception(KafkaError("gone"))
    log.deliver()
    (failed,) = await asyncio.gather(end, return_exceptions=True)
    assert isinstance(failed, LostError)


async def test_answer_of_a_busy_worker_waits_for_the_delivery_of_its_last_tokens() -> None:
    log = SlowLog(pauses=True)
    answer = answer_on(log)
    await answer.write(Delta(0, (7,), "word"))
    pause = asyncio.create_task(answer.pause())
    await asyncio.sleep(0)
    assert len(log.deliveries) == 1, "they are sent at once"
    assert not pause.done()
    log.deliver()
    await pause


async def test_answer_of_a_busy_worker_that_is_cancelled_leaves_its_deliveries() -> None:
    log = SlowLog(pauses=True)
    answer = answer_on(log)
    await answer.write(Delta(0, (7,), "word"))
    pause = asyncio.create_task(answer.pause())
    await asyncio.sleep(0)
    pause.cancel()
    await asyncio.gather(pause, return_exceptions=True)
    assert not log.deliveries[0].cancelled()
