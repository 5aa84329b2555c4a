"""What sharing costs and gains: `python -m tests.benchmarks.gateways [--gateways 1,2,4] [--streams 100]`.

share: event streams, each with one reader, spread evenly over 1, 2 and 4 gateways, which own the answer that they are
asked for by chance. How much processor time do all gateways together spend on a token, how many records of `tokens`
does each of them read, and how late are tokens? Once with the same streams whatever the number of gateways, once with
as many streams for each gateway, at half of the rate.
moves: 200 streams at gateways that join, leave and are killed. Is every stream whole, and how long does it pause?

The tokens are written by this process at a set pace and carry the time at which they were written.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

from aiokafka import AIOKafkaProducer
from aiokafka.structs import RecordMetadata

from app.kafka.clients import producer
from app.kafka.topics import create_topics
from app.local.kafka import KafkaCluster
from app.local.ports import LOOPBACK
from app.settings import Settings
from app.wire.codec import encode
from app.wire.event import EventType, TokenEvent
from app.wire.ids import partition_for
from models.interface.generation import FinishReason
from tests.benchmarks.processes import processor_s
from tests.benchmarks.stats import quantile
from tests.integration.gateway.gateway_process import GatewayProcess
from tests.integration.gateway.test_sharing import metric

PARTITIONS = 8
_EVENT = b'data: {"type":"token"'
_JOINED_S = 30.0
_IDLE_S = 5.0
_MOVE_EVERY_S = 6.0
_COLUMNS = (
    "gateways",
    "tokens/s",
    "idle, ms/s each",
    "processor time a token, us",
    "read by each",
    "p50 ms",
    "p99 ms",
    "broken",
)


@dataclass(frozen=True, slots=True)
class Load:
    """`rate`: tokens per second of each stream."""

    streams: int
    tokens: int
    rate: float


@dataclass
class Stream(asyncio.Protocol):
    """One event stream; after a lost connection it is opened again, at any gateway that lives."""

    user: str
    request_id: str
    gateways: Sequence[GatewayProcess]
    first: int
    indexes: list[int] = field(default_factory=list)
    arrived: list[float] = field(default_factory=list)
    delays: list[float] = field(default_factory=list)
    reconnects: int = -1
    _rest: bytes = b""
    _position: int = 0
    _transport: asyncio.Transport | None = None

    def __post_init__(self) -> None:
        self.over = asyncio.get_running_loop().create_future()

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        while not self.over.done():
            living = [one for one in self.gateways if one.is_running]
            gateway = living[(self.first + self.reconnects + 1) % len(living)]
            port = urlsplit(gateway.url).port or 0
            try:
                await loop.create_connection(lambda: self, LOOPBACK, port)
            except OSError:
                await asyncio.sleep(0.1)
                continue
            self.reconnects += 1
            return

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport, self._rest = transport, b""
        path = f"/v1/requests/{self.request_id}/events?user_id={self.user}"
        head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nLast-Event-ID: {self._position}\r\n\r\n"
        transport.write(head.encode())

    def data_received(self, data: bytes) -> None:
        now = time.monotonic()
        *blocks, self._rest = (self._rest + data).split(b"\n\n")
        for block in blocks:
            place = block.find(_EVENT)
            if place >= 0:
                text = block[block.index(b'"text":"', place) + 8 :]
                index, written = text[: text.index(b'"')].split()
                self.indexes.append(int(index))
                self.arrived.append(now)
                self.delays.append(now - float(written))
                self._position = int(index) + 1
            elif b'"type":"done"' in block and not self.over.done():
                self.over.set_result(None)
                assert self._transport is not None
                self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.over.done():
            self._reopening = asyncio.create_task(self.open())

    def is_whole(self, tokens: int) -> bool:
        return self.indexes == list(range(tokens))

    @property
    def longest_pause_s(self) -> float:
        return max((later - earlier for earlier, later in pairwise(self.arrived)), default=0.0)


class Writer:
    """Writes the tokens of all answers at a set pace, as workers would."""

    def __init__(self, settings: Settings, streams: Sequence[Stream], tokens: int, rate: float) -> None:
        self._topic = settings.topic("tokens")
        self._streams = streams
        self._tokens = tokens
        self._pause_s = 1 / (rate * len(streams))
        self._epochs: dict[int, int] = {}

    async def write(self, records: AIOKafkaProducer) -> None:
        for partition in range(PARTITIONS):
            sent = await (await self._send(records, partition, None, TokenEvent(type=EventType.FENCE)))
            self._epochs[partition] = sent.offset
        due = time.monotonic()
        for index in range(self._tokens + 1):
            for stream in self._streams:
                due += self._pause_s
                await asyncio.sleep(due - time.monotonic())
                partition = partition_for(stream.user, PARTITIONS)
                event = TokenEvent(
                    type=EventType.TOKEN if index < self._tokens else EventType.DONE,
                    request_id=stream.request_id,
                    user_id=stream.user,
                    conversation_id="default",
                    index=index,
                    epoch=self._epochs[partition],
                    tokens=(1,) if index < self._tokens else None,
                    text=f"{index} {time.monotonic():.6f}" if index < self._tokens else None,
                    finish_reason=None if index < self._tokens else FinishReason.LENGTH,
                )
                await self._send(records, partition, stream.user.encode(), event)

    async def _send(
        self, records: AIOKafkaProducer, partition: int, key: bytes | None, event: TokenEvent
    ) -> asyncio.Future[RecordMetadata]:
        value, headers = encode(event)
        sent: asyncio.Future[RecordMetadata] = await records.send(
            self._topic, value, key=key, partition=partition, headers=headers
        )
        return sent


async def divided(gateways: Sequence[GatewayProcess]) -> None:
    async with asyncio.timeout(_JOINED_S):
        while True:
            parts = [metric(one, "parley_gateway_partitions") for one in gateways]
            if sum(parts) == PARTITIONS and all(parts):
                return
            await asyncio.sleep(0.2)


def new_streams(count: int, gateways: Sequence[GatewayProcess], tag: str) -> list[Stream]:
    return [Stream(f"{tag}-{number}", uuid.uuid4().hex, gateways, number) for number in range(count)]


async def run(settings: Settings, streams: Sequence[Stream], load: Load) -> None:
    await asyncio.gather(*(stream.open() for stream in streams))
    await asyncio.sleep(1.0)
    records = producer(settings.cluster)
    await records.start()
    try:
        await Writer(settings, streams, load.tokens, load.rate).write(records)
        async with asyncio.timeout(120):
            await asyncio.gather(*(stream.over for stream in streams))
    finally:
        await records.stop()


@dataclass(frozen=True, slots=True)
class Shared:
    """Times are seconds: of all gateways together for a token, of each idle one in a second, of a token on its way."""

    gateways: int
    idle_s: float
    token_s: float
    shares: Sequence[float]
    p50: float
    p99: float
    broken: int


async def shared(settings: Settings, folder: Path, count: int, load: Load) -> Shared:
    """With topics of its own, because gateways that join read the last minute of `tokens`."""
    prefix = f"{settings.topic_prefix}{uuid.uuid4().hex[:6]}-"
    settings = settings.model_copy(update={"topic_prefix": prefix})
    await create_topics(settings)
    with ExitStack() as running:
        gateways = [
            running.enter_context(GatewayProcess(settings, folder / f"{count}-{at}.log", is_shared=True))
            for at in range(count)
        ]
        await divided(gateways)
        opened = new_streams(load.streams, gateways, f"share{count}")
        before = _seconds(gateways)
        await asyncio.sleep(_IDLE_S)
        idle = (_seconds(gateways) - before) / _IDLE_S / count
        before, read = _seconds(gateways), [metric(one, "parley_gateway_events") for one in gateways]
        await run(settings, opened, load)
        spent = _seconds(gateways) - before
        reads = [metric(one, "parley_gateway_events") - was for one, was in zip(gateways, read, strict=True)]
        delays = [delay for stream in opened for delay in stream.delays]
        return Shared(
            count,
            idle,
            spent / (load.streams * load.tokens),
            [part / sum(reads) for part in reads],
            quantile(delays, 0.5),
            quantile(delays, 0.99),
            sum(not stream.is_whole(load.tokens) for stream in opened),
        )


async def share(settings: Settings, folder: Path, counts: Sequence[int], load: Load, *, each: bool) -> None:
    print(f"| {' | '.join(_COLUMNS)} |")
    print("|---" * len(_COLUMNS) + "|")
    for count in counts:
        streams = load.streams * count if each else load.streams
        one = await shared(settings, folder, count, replace(load, streams=streams))
        parts = ", ".join(f"{100 * part:.0f} %" for part in one.shares)
        figures = [streams * load.rate, one.idle_s * 1e3, one.token_s * 1e6]
        delays = [f"{one.p50 * 1e3:.1f}", f"{one.p99 * 1e3:.1f}"]
        row = [f"{count}", *(f"{figure:.0f}" for figure in figures), parts, *delays, f"{one.broken}"]
        print(f"| {' | '.join(row)} |", flush=True)


async def moves(settings: Settings, folder: Path, load: Load) -> None:
    gateways = [GatewayProcess(settings, folder / f"move-{at}.log", is_shared=True) for at in range(5)]
    try:
        for one in gateways[:3]:
            await asyncio.to_thread(one.start)
        await divided(gateways[:3])
        opened = new_streams(load.streams, gateways, "moves")
        reading = asyncio.create_task(run(settings, opened, load))
        await asyncio.sleep(_MOVE_EVERY_S)
        acts: tuple[tuple[str, Callable[[], object]], ...] = (
            ("was killed", gateways[0].kill),
            ("has joined", gateways[3].start),
            ("has left", gateways[1].stop),
            ("has joined", gateways[4].start),
        )
        for what, act in acts:
            await asyncio.to_thread(act)
            print(f"  a gateway {what}", flush=True)
            await asyncio.sleep(_MOVE_EVERY_S)
        await reading
    finally:
        for one in gateways:
            one.kill()
    whole = sum(stream.is_whole(load.tokens) for stream in opened)
    print(f"{whole} of {load.streams} streams whole")
    stayed = [stream for stream in opened if not stream.reconnects]
    for name, streams in (("all", opened), ("those whose gateway stayed", stayed)):
        pauses = [stream.longest_pause_s for stream in streams]
        spread = f"p50 {quantile(pauses, 0.5):.1f} s, max {max(pauses):.1f} s"
        print(f"longest pause of {name} ({len(streams)}): {spread}")


def _seconds(gateways: Sequence[GatewayProcess]) -> float:
    return processor_s(one.pid for one in gateways)


async def main(options: argparse.Namespace, folder: Path) -> None:
    cluster = KafkaCluster(folder / "kafka", 1)
    await asyncio.to_thread(cluster.start)
    try:
        settings = Settings(
            _env_file=None,
            broker=cluster.broker_setting,
            topic_prefix="gateways-",
            app_id="gateways-bench",
            data_dir=folder / "data",
            partitions=PARTITIONS,
            gateway_start_s=0.0,
            gateway_wait_s=60.0,
        )
        await create_topics(settings)
        load = Load(options.streams, options.tokens, options.rate)
        await share(settings, folder, options.gateways, load, each=False)
        print()
        await share(settings, folder, options.gateways, replace(load, rate=load.rate / 2), each=True)
        print()
        await moves(settings, folder, Load(200, tokens=200, rate=5.0))
    finally:
        await asyncio.to_thread(cluster.kill)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.gateways", description=__doc__)
    parser.add_argument("--gateways", type=lambda text: [int(one) for one in text.split(",")], default=[1, 2, 4])
    parser.add_argument("--streams", type=int, default=100)
    parser.add_argument("--tokens", type=int, default=300)
    parser.add_argument("--rate", type=float, default=15.0, help="tokens per second of each stream")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="parley-gateways-", ignore_cleanup_errors=True) as place:
        asyncio.run(main(chosen, Path(place)))
