"""What many would write: Quix Streams in front of the same engine.

Quix hands out one record at a time and knows no asyncio, so the records are handed to an event loop in a thread, which
answers many at once; its own producer sends what they say. Librdkafka's waits are at their shortest. What it lacks:
Quix commits offsets when a record was handed on, so a crash loses the answers under way; order within a conversation;
memory.
"""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import Future

import msgspec
from quixstreams import Application

from tests.benchmarks.load import Ask
from tests.benchmarks.peers.engine import BareEngine, open_engine
from tests.benchmarks.peers.lifetime import end_with_parent
from tests.benchmarks.peers.pinning import name_engine


class Answering:
    """The engine on an event loop of its own thread."""

    def __init__(self, producer: object, replies: str) -> None:
        self._producer: object = producer
        self._replies = replies
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._engine: BareEngine = self._call(open_engine()).result()

    def take(self, ask: Ask) -> None:
        self._call(self._answer(ask))

    def _call(self, work: object) -> Future:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _answer(self, ask: Ask) -> None:
        async for tokens, text in self._engine.answer(ask):
            self._send(ask, {"type": "token", "tokens": tokens, "text": text})
        self._send(ask, {"type": "done"})

    def _send(self, ask: Ask, event: dict[str, object]) -> None:
        value = msgspec.json.encode({"request_id": ask.request_id, **event})
        self._producer.produce(self._replies, value, key=ask.user_id.encode())  # type: ignore[attr-defined]
        self._producer.poll(0)  # type: ignore[attr-defined]


def main() -> None:
    server, topic, replies = (os.environ[f"BENCH_{name}"] for name in ("SERVER", "REQUESTS", "REPLIES"))
    app = Application(
        broker_address=server,
        consumer_group=topic,
        auto_offset_reset="earliest",
        auto_create_topics=False,
        loglevel="WARNING",
        consumer_poll_timeout=0.05,
        consumer_extra_config={"fetch.wait.max.ms": 500, "fetch.min.bytes": 1},
        producer_extra_config={"linger.ms": 0, "acks": "all", "enable.idempotence": True},
    )
    with app.get_producer() as producer:
        answering = Answering(producer, replies)
        frame = app.dataframe(app.topic(topic, value_deserializer="bytes"))
        frame = frame.update(lambda value: answering.take(msgspec.json.decode(value, type=Ask)))
        print("ready", flush=True)
        app.run()


if __name__ == "__main__":
    end_with_parent()
    name_engine()
    main()
