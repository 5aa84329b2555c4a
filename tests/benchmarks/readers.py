"""A thousand readers of live answers behind one gateway, against a plain Kafka consumer in the same run.

    python -m tests.benchmarks.readers [--readers 1000] [--answers 50] [--tokens 40] [--rate 2]

Every answer is read by `readers / answers` event streams at once. The tokens are written by this process at a set pace
and carry the time at which they were written; the same process reads them back from Kafka and from all the streams, so
that what it is slow at itself is in both figures. Told are: how long a token takes to both, what a reader costs the
gateway in memory, and whether each reader got each token once and in order.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import statistics
import tempfile
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from app.gateway.edge import bounds
from app.kafka.clients import consumer, producer
from app.kafka.topics import create_topics
from app.local.kafka import KafkaCluster
from app.settings import Settings
from app.wire.codec import decode, encode
from app.wire.event import EventType, TokenEvent
from app.wire.ids import partition_for
from models.interface.generation import FinishReason
from tests.integration.gateway.gateway_process import GatewayProcess

USER = "dev"
PARTITIONS = 4
OPENED_AT_ONCE = 50
_EVENT = b'data: {"type":"token"'


@dataclass(frozen=True, slots=True)
class Measured:
    """Delays in seconds from the write of a token; of the gateway bytes a reader, and seconds of work a token.

    The last does not depend on what else the machine does.
    """

    raw: list[float]
    streamed: list[float]
    memory: float
    processor_s: float
    broken: int


@dataclass
class Reader(asyncio.Protocol):
    """One event stream on a socket of its own, with as little work a token as there can be."""

    path: str
    indexes: list[int] = field(default_factory=list)
    delays: list[float] = field(default_factory=list)
    ended: bool = False
    _rest: bytes = b""
    _transport: asyncio.Transport | None = None

    def __post_init__(self) -> None:
        self.over = asyncio.get_running_loop().create_future()
        self.head = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(f"GET {self.path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())

    def data_received(self, data: bytes) -> None:
        now = time.monotonic()
        if not self.head.done():
            self.head.set_result(None)
        *blocks, self._rest = (self._rest + data).split(b"\n\n")
        for block in blocks:
            place = block.find(_EVENT)
            if place >= 0:
                text = block[block.index(b'"text":"', place) + 8 :]
                index, written = text[: text.index(b'"')].split()
                self.indexes.append(int(index))
                self.delays.append(now - float(written))
            elif b'"type":"done"' in block:
                self.ended = True
                self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.over.done():
            self.over.set_result(None)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


class Writer:
    """Says the tokens of all answers at a set pace, as a worker would."""

    def __init__(self, settings: Settings, answers: Sequence[str], tokens: int, rate: float) -> None:
        self._settings = settings
        self._answers = answers
        self._tokens = tokens
        self._rate = rate
        self._partition = partition_for(USER, PARTITIONS)

    async def write(self, records: AIOKafkaProducer) -> None:
        sent = await self._say(records, TokenEvent(type=EventType.FENCE))
        epoch = sent.offset
        pause = 1 / (self._rate * len(self._answers))
        at = time.monotonic()
        for index in range(self._tokens + 1):
            for request_id in self._answers:
                at += pause
                await asyncio.sleep(at - time.monotonic())
                about = {"request_id": request_id, "user_id": USER, "conversation_id": request_id, "epoch": epoch}
                if index == self._tokens:
                    last = TokenEvent(type=EventType.DONE, index=index, finish_reason=FinishReason.LENGTH, **about)
                    await self._say(records, last)
                    continue
                text = f"{index} {time.monotonic():.6f}"
                await self._say(records, TokenEvent(type=EventType.TOKEN, index=index, tokens=(1,), text=text, **about))

    async def _say(self, records: AIOKafkaProducer, event: TokenEvent) -> object:
        value, headers = encode(event)
        topic = self._settings.topic("tokens")
        sending = await records.send(topic, value, key=USER.encode(), partition=self._partition, headers=headers)
        return await sending if event.type is EventType.FENCE else sending


async def read_raw(records: AIOKafkaConsumer, tokens: int, delays: list[float]) -> None:
    while len(delays) < tokens:
        for batch in (await records.getmany(timeout_ms=1000)).values():
            for record in batch:
                now = time.monotonic()
                event = decode(TokenEvent, record.value, record.headers)
                if event.type is EventType.TOKEN:
                    delays.append(now - float((event.text or "").split()[1]))


async def ask(gateway: GatewayProcess, answers: int) -> list[str]:
    """Requests of one conversation each; only this process answers them."""
    async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as http:
        bodies = [{"prompt": "hello", "conversation_id": str(number)} for number in range(answers)]
        return [(await http.post("/v1/requests", json=body)).json()["request_id"] for body in bodies]


async def open_readers(gateway: GatewayProcess, answers: Sequence[str], each: int) -> list[Reader]:
    loop = asyncio.get_running_loop()
    readers = [Reader(f"/v1/requests/{request_id}/events") for request_id in answers for _ in range(each)]
    for first in range(0, len(readers), OPENED_AT_ONCE):
        some = readers[first : first + OPENED_AT_ONCE]
        for reader in some:
            await loop.create_connection(lambda reader=reader: reader, "127.0.0.1", gateway.settings.gateway_port)
        await asyncio.gather(*(reader.head for reader in some))
    return readers


async def measure(
    settings: Settings, gateway: GatewayProcess, *, readers: int, answers: int, tokens: int, rate: float
) -> Measured:
    """One run; `settings` have their topics, and `gateway` serves them with at least `readers` streams a user."""
    ids = await ask(gateway, answers)
    process = psutil.Process(gateway.pid)
    before = process.memory_info().rss
    streams = await open_readers(gateway, ids, readers // answers)
    raw: list[float] = []
    began = process.cpu_times()
    writes, reads = producer(settings.cluster), consumer(settings.cluster)
    place = TopicPartition(settings.topic("tokens"), partition_for(USER, PARTITIONS))
    reads.assign([place])
    await writes.start()
    await reads.start()
    try:
        await reads.seek_to_end(place)
        reading = asyncio.create_task(read_raw(reads, answers * tokens, raw))
        await Writer(settings, ids, tokens, rate).write(writes)
        memory = (process.memory_info().rss - before) / len(streams)
        async with asyncio.timeout(60):
            await reading
            await asyncio.gather(*(stream.over for stream in streams))
    finally:
        for stream in streams:
            stream.close()
        await writes.stop()
        await reads.stop()
    ended = process.cpu_times()
    worked = ended.user + ended.system - began.user - began.system
    broken = sum(not stream.ended or stream.indexes != list(range(tokens)) for stream in streams)
    streamed = [delay for stream in streams for delay in stream.delays]
    return Measured(raw, streamed, memory, worked / max(1, len(streamed)), broken)


def p99(delays: Sequence[float]) -> float:
    return sorted(delays)[int(len(delays) * 0.99)]


def print_delays(name: str, delays: Sequence[float]) -> None:
    middle, slow = statistics.median(delays) * 1000, p99(delays) * 1000
    print(f"{name:<24} {len(delays):>8} tokens   p50 {middle:8.1f} ms   p99 {slow:8.1f} ms", flush=True)


async def main(options: argparse.Namespace, folder: Path) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536), hard))
    kafka = KafkaCluster(folder / "kafka")
    kafka.start()
    try:
        settings = Settings(
            _env_file=None,
            broker=kafka.broker_setting,
            partitions=PARTITIONS,
            embedder="none",
            topic_prefix=f"r{uuid.uuid4().hex[:8]}-",
            gateway_requests_per_min=0,
            gateway_start_s=0.0,
        )
        await create_topics(settings)
        constants = {"app.gateway.edge.bounds.STREAMS_OF_USER": max(bounds.STREAMS_OF_USER, options.readers)}
        with GatewayProcess(settings, folder / "gateway.log", constants=constants) as gateway:
            shape = {"answers": options.answers, "tokens": options.tokens, "rate": options.rate}
            await measure(settings, gateway, readers=options.answers, answers=options.answers, tokens=5, rate=2.0)
            found = await measure(settings, gateway, readers=options.readers, **shape)
    finally:
        kafka.kill()
    print_delays("plain Kafka consumer", found.raw)
    print_delays(f"{options.readers} event streams", found.streamed)
    print(f"p99 against the plain consumer: {p99(found.streamed) / p99(found.raw):.1f}x")
    print(
        f"of the gateway {found.memory / 1024:.0f} KiB a reader, {found.processor_s * 1e6:.0f} µs a token to a reader"
    )
    print(f"{found.broken} of {options.readers} readers without the whole answer, each token once and in order")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--readers", type=int, default=1000)
    parser.add_argument("--answers", type=int, default=50)
    parser.add_argument("--tokens", type=int, default=40, help="of one answer")
    parser.add_argument("--rate", type=float, default=2.0, help="tokens a second of one answer")
    with tempfile.TemporaryDirectory() as name:
        asyncio.run(main(parser.parse_args(), Path(name)))
