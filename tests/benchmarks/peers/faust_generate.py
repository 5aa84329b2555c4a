"""What many would write: a Faust agent that calls transformers' `generate` in an executor.

Tuned as far as its shape lets it: prompts that wait are taken together (`take` with a window of 5 ms) and generated as
one padded batch, tokens are streamed out while the batch runs, sends go through aiokafka's own producer. What it cannot
do: let a prompt join a batch that runs.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import faust
import msgspec
import torch
from aiokafka import AIOKafkaProducer

from app.process.tune_interpreter import tune_interpreter
from models.checkpoints.loading import Checkpoint, load_checkpoint
from models.prompts.builder import PromptBuilder
from tests.benchmarks.load import Ask
from tests.benchmarks.peers.lifetime import end_with_parent

BATCH = 16
WINDOW_S = 0.005


class Sending:
    """What `generate` calls a streamer: is given every new column of the batch as it is drawn."""

    def __init__(self, send: Any) -> None:
        self._send = send
        self._prompt_seen = False

    def put(self, column: torch.Tensor) -> None:
        if self._prompt_seen:
            self._send(column.tolist())
        self._prompt_seen = True

    def end(self) -> None:
        self._send(None)


class Generator:
    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._model: Any = checkpoint.model
        self._model.set_attn_implementation("sdpa")
        self._prompts = PromptBuilder(checkpoint)

    def generate(self, asks: Sequence[Ask], send: Any) -> None:
        """In the executor's thread; `send` gets a token for each ask a step, None at the end."""
        ids = [list(self._prompts.build("", (), ask.prompt).ids) for ask in asks]
        width = max(map(len, ids))
        padded = torch.tensor([[0] * (width - len(row)) + row for row in ids])  # left, as generate wants it
        seen = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in ids])
        self._model.generate(
            padded,
            attention_mask=seen,
            max_new_tokens=max(ask.max_tokens for ask in asks),
            do_sample=False,
            pad_token_id=0,
            eos_token_id=sorted(self._checkpoint.eos) or None,
            streamer=Sending(send),
        )

    def text(self, token: int) -> str:
        return str(self._checkpoint.tokenizer.decode([token]))

    def ends(self, token: int) -> bool:
        return token in self._checkpoint.eos


def create() -> faust.App:
    topic, replies = os.environ["BENCH_REQUESTS"], os.environ["BENCH_REPLIES"]
    app = faust.App(
        topic,
        broker=f"kafka://{os.environ['BENCH_SERVER']}",
        store="memory://",
        topic_disable_leader=True,
        worker_redirect_stdouts=False,
    )
    app.conf.web_enabled = False
    torch.set_num_threads(int(os.environ["BENCH_THREADS"]))
    generator = Generator(load_checkpoint(os.environ["BENCH_MODEL"]))
    executor = ThreadPoolExecutor(1)
    producers: list[AIOKafkaProducer] = []
    tune_interpreter()

    async def send(ask: Ask, event: dict[str, Any]) -> Any:
        value = msgspec.json.encode({"request_id": ask.request_id, **event})
        return await producers[0].send(replies, value, key=ask.user_id.encode())

    async def answer(asks: Sequence[Ask]) -> None:
        loop, steps = asyncio.get_running_loop(), asyncio.Queue()
        running = loop.run_in_executor(
            executor, generator.generate, asks, lambda step: loop.call_soon_threadsafe(steps.put_nowait, step)
        )
        open_asks, sent = dict(enumerate(asks)), []
        index = 0
        while open_asks and (column := await steps.get()) is not None:
            index += 1
            for row, ask in list(open_asks.items()):
                token = column[row]
                if not generator.ends(token):
                    sent.append(await send(ask, {"type": "token", "tokens": [token], "text": generator.text(token)}))
                if generator.ends(token) or index >= ask.max_tokens:
                    sent.append(await send(ask, {"type": "done"}))
                    del open_asks[row]
        await asyncio.gather(*sent)
        await running

    @app.agent(app.topic(topic, value_serializer="raw", value_type=bytes))
    async def agent(stream: AsyncIterable[bytes]) -> None:
        async for values in stream.take(BATCH, within=WINDOW_S):  # type: ignore[attr-defined]
            await answer([msgspec.json.decode(value, type=Ask) for value in values])

    async def begin(_app: Any, assigned: Any, **_: Any) -> None:
        if assigned and not producers:
            server = os.environ["BENCH_SERVER"]
            producers.append(AIOKafkaProducer(bootstrap_servers=server, enable_idempotence=True, linger_ms=0))
            await producers[0].start()
            print("ready", flush=True)

    app.on_partitions_assigned.connect(begin, weak=False)
    return app


if __name__ == "__main__":
    end_with_parent()
    faust.Worker(create(), loglevel="WARNING").execute_from_commandline()
