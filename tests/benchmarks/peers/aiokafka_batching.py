"""What a careful hand would write: a plain aiokafka loop around transformers' own continuous batching.

Prompts join a running batch, results come by handler and not by polling, tokens go out as drawn. What it lacks:
order within a conversation, memory, a finish that is atomic; offsets are committed when handed out, so a crash loses
what runs. A request that fails inside the manager ends the manager.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

import msgspec
import torch
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from transformers import ContinuousBatchingConfig, GenerationConfig

from app.process.tune_interpreter import tune_interpreter
from models.checkpoints.loading import Checkpoint, load_checkpoint
from models.prompts.builder import PromptBuilder
from tests.benchmarks.load import Ask
from tests.benchmarks.peers.lifetime import end_with_parent


class Manager:
    """transformers' manager, its results brought to the event loop."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        model: Any = checkpoint.model
        model.set_attn_implementation("paged|sdpa")
        generation = GenerationConfig(
            do_sample=False, eos_token_id=sorted(checkpoint.eos) or -1, pad_token_id=0, max_new_tokens=1024
        )
        sizes = ContinuousBatchingConfig(block_size=16, num_blocks=4096, max_batch_tokens=512)
        self._eos = checkpoint.eos
        self._manager = model.init_continuous_batching(generation, sizes)
        self._manager.start()

    async def answer(self, ask: Ask, ids: list[int], send: Any) -> None:
        """`send` is called with the new tokens of each step."""
        sent = 0
        outputs: asyncio.Queue[Any] = asyncio.Queue()
        self._manager.register_result_handler(ask.request_id, outputs.put_nowait)
        self._manager.add_request(ids, request_id=ask.request_id, max_new_tokens=ask.max_tokens, streaming=True)
        while True:
            output = await outputs.get()
            tokens = [token for token in output.generated_tokens[sent:] if token not in self._eos]
            sent = len(output.generated_tokens)
            if tokens:
                await send(tokens)
            if output.is_finished():
                return


async def main() -> None:
    torch.set_num_threads(int(os.environ["BENCH_THREADS"]))
    checkpoint = load_checkpoint(os.environ["BENCH_MODEL"])
    prompts, manager = PromptBuilder(checkpoint), Manager(checkpoint)
    server, topic, replies = (os.environ[f"BENCH_{name}"] for name in ("SERVER", "REQUESTS", "REPLIES"))
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=server, group_id=topic, auto_offset_reset="earliest")
    producer = AIOKafkaProducer(bootstrap_servers=server, enable_idempotence=True, acks="all", linger_ms=0)
    await producer.start()
    await consumer.start()
    running: set[asyncio.Task[None]] = set()

    async def answer(ask: Ask) -> None:
        async def send(event: dict[str, Any]) -> Any:
            value = msgspec.json.encode({"request_id": ask.request_id, **event})
            return await producer.send(replies, value, key=ask.user_id.encode())

        async def send_tokens(tokens: list[int]) -> None:
            text = checkpoint.tokenizer.decode(tokens)
            await send({"type": "token", "tokens": tokens, "text": text})

        await manager.answer(ask, list(prompts.build("", (), ask.prompt).ids), send_tokens)
        await (await send({"type": "done"}))

    tune_interpreter()
    while not consumer.assignment():
        await asyncio.sleep(0.05)
    print("ready", flush=True)
    async for record in consumer:
        task = asyncio.create_task(answer(msgspec.json.decode(record.value, type=Ask)))
        running.add(task)
        task.add_done_callback(running.discard)


if __name__ == "__main__":
    end_with_parent()
    asyncio.run(main())
