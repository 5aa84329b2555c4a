"""A worker without a model: it repeats the prompt, word by word, and does as the prompt says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from app.kafka.clients import consumer, partitions_of, producer
from app.reader.position import Edge, seek
from app.settings import Settings
from app.wire.codec import decode, encode
from app.wire.control import Cancel, Control, Erase
from app.wire.event import ErrorInfo, EventType, Notice, TokenEvent
from app.wire.request import Request
from models.interface.generation import FinishReason, Usage


@dataclass
class ScriptedWorker:
    """Half of the words are reasoning if a request asks for some. `wait` in a prompt stops the answer there until it is
    cancelled, `hang` for ever, and `pause` until `goes_on` is set; `fail` is an error. `scripts` has other words for
    some prompts, which are written as they are.
    """

    settings: Settings
    records: AIOKafkaConsumer
    tokens: AIOKafkaProducer
    requests: list[Request] = field(default_factory=list)
    controls: list[Cancel | Erase] = field(default_factory=list)
    cancelled: dict[str, asyncio.Event] = field(default_factory=dict)
    goes_on: asyncio.Event = field(default_factory=asyncio.Event)
    scripts: dict[str, list[str]] = field(default_factory=dict)

    async def say(self, partition: int, event: TokenEvent) -> int:
        """Write an event; its offset."""
        value, headers = encode(event, self.settings.wire_format)
        key = event.user_id.encode() if event.user_id else None
        topic = self.settings.topic("tokens")
        sent = await self.tokens.send_and_wait(topic, value, key=key, partition=partition, headers=headers)
        return int(sent.offset)

    async def fence(self, partition: int) -> int:
        return await self.say(partition, TokenEvent(type=EventType.FENCE))

    async def work(self) -> None:
        async with asyncio.TaskGroup() as answers:
            async for record in self.records:
                if record.topic == self.settings.topic("controls"):
                    control = decode(Control, record.value, record.headers)
                    self.controls.append(control)
                    if isinstance(control, Cancel):
                        self.cancelled.setdefault(control.request_id, asyncio.Event()).set()
                else:
                    request = decode(Request, record.value, record.headers)
                    if request.while_busy.supersedes:
                        for earlier in self.requests:
                            self.cancelled.setdefault(earlier.request_id, asyncio.Event()).set()
                    self.requests.append(request)
                    answers.create_task(self.answer(request, record.partition))

    async def answer(self, request: Request, partition: int) -> None:
        event = TokenEvent(
            type=EventType.NOTICE,
            request_id=request.request_id,
            user_id=request.user_id,
            conversation_id=request.conversation_id,
            epoch=await self.fence(partition),
            notice=Notice("resumed", "a scripted worker answers"),
        )
        await self.say(partition, event)
        about: dict[str, Any] = {"notice": None, "index": 0}
        words = self.scripts.get(request.question) or [f"{word} " for word in request.question.split()]
        reasoned = len(words) // 2 if request.reasoning_effort else 0
        for index, word in enumerate(words):
            about["index"] = index
            sign = word.strip()
            if sign == "hang":
                await asyncio.Event().wait()
            if sign == "pause":
                await self.goes_on.wait()
            if sign == "wait":
                await self.cancelled.setdefault(request.request_id, asyncio.Event()).wait()
                return await self.end(partition, event, index, finish_reason=FinishReason.CANCELLED)
            if sign == "fail":
                return await self.end(partition, event, index, error=ErrorInfo("engine_error", "the script fails here"))
            said = {"text": "", "reasoning": word} if index < reasoned else {"text": word}
            token = msgspec.structs.replace(event, type=EventType.TOKEN, tokens=(index,), **said, **about)
            await self.say(partition, token)
        return await self.end(partition, event, about["index"] + 1, finish_reason=FinishReason.STOP)

    async def end(self, partition: int, event: TokenEvent, index: int, **how: Any) -> None:
        kind = EventType.ERROR if "error" in how else EventType.DONE
        usage = None if "error" in how else Usage(1, index)
        await self.say(
            partition, msgspec.structs.replace(event, type=kind, notice=None, index=index, usage=usage, **how)
        )


@asynccontextmanager
async def scripted_worker(settings: Settings) -> AsyncIterator[ScriptedWorker]:
    names = [settings.topic("requests"), settings.topic("controls")]
    counts = await partitions_of(settings.cluster, names)
    partitions = [TopicPartition(name, number) for name in names for number in range(counts[name])]
    records, tokens = consumer(settings.cluster), producer(settings.cluster)
    records.assign(partitions)
    await records.start()
    await tokens.start()
    await seek(records, partitions, Edge.BEGINNING)
    worker = ScriptedWorker(settings, records, tokens)
    working = asyncio.create_task(worker.work())
    try:
        yield worker
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        await records.stop()
        await tokens.stop()
