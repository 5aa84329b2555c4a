"""`python -m tests.benchmarks.engine --gpu`: a decode step against the time that memory needs for what it must read.

Llama-shaped models of random weights in bfloat16. The roofline is (weights + keys and values of all rows) / bandwidth,
the bandwidth measured in the same run by copying. One run answers: ms a step at 1, 8, 32 and 128 rows, their share of
the roofline, and how many times longer transformers' `generate` and its continuous batching take for the same answers.
"""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from models.checkpoints.loading import Checkpoint
from models.engine import EngineOptions, TorchEngine
from models.files.architectures import head_size, kv_heads
from models.interface.generation import Delta, Job, Sampling
from tests.benchmarks.transformers_ways import ContinuousBatching, StaticGenerate, beside
from tests.unit.models import tiny

SIZES = (1, 8, 32, 128)
CONTEXT = 1024
NEW = 64
LEAST_STEPS = 16
SHAPES: dict[str, dict[str, Any]] = {
    "1B": {
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "vocab_size": 128256,
        "tie_word_embeddings": True,
    },
    "8B": {
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 128256,
    },
    "tiny": {"num_hidden_layers": 2},  # to try this file on a CPU
}


def checkpoint(shape: str, device: str) -> Checkpoint:
    from transformers import AutoConfig, AutoModelForCausalLM  # noqa: PLC0415

    fields = tiny.SIZES | {"vocab_size": 320} | SHAPES[shape] | {"max_position_embeddings": 2 * CONTEXT}
    config = AutoConfig.for_model("llama", eos_token_id=0, pad_token_id=4, bos_token_id=None, **fields)
    torch.manual_seed(0)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
    base = tiny.checkpoint()
    return dataclasses.replace(
        base,
        name=shape,
        model=model.requires_grad_(requires_grad=False),
        eos=frozenset(),
        context_length=2 * CONTEXT,
    )


def bandwidth(device: str, size: int) -> float:
    """Bytes a second, read and written, of the largest copies."""
    source = torch.empty(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    best = 0.0
    for _ in range(8):
        _settle(device)
        begun = time.perf_counter()
        target.copy_(source)
        _settle(device)
        best = max(best, 2 * size / (time.perf_counter() - begun))
    return best


def bytes_of_a_step(made: Checkpoint, rows: int) -> int:
    """What every step has to read: all weights but the table of embeddings, and what the rows attend."""
    model, config = made.model, made.model.config
    weights = sum(weight.nbytes for weight in model.parameters())
    if not config.tie_word_embeddings:
        weights -= model.get_input_embeddings().weight.nbytes
    token = 2 * config.num_hidden_layers * kv_heads(config) * head_size(config) * model.dtype.itemsize
    return weights + rows * (CONTEXT + NEW // 2) * token


def prompts(made: Checkpoint, rows: int, seed: int) -> list[list[int]]:
    chance = torch.Generator().manual_seed(seed)
    return torch.randint(5, made.model.config.vocab_size, (rows, CONTEXT), generator=chance).tolist()


async def measure(shape: str, device: str, sizes: tuple[int, ...]) -> None:
    made = checkpoint(shape, device)
    speed = bandwidth(device, 1 << 32 if device != "cpu" else 1 << 26)
    print(f"\n{shape}: {made.model.num_parameters() / 1e9:.2f}B in {made.model.dtype}, {speed / 1e12:.2f} TB/s copying")
    print(f"{'rows':>6}{'step ms':>10}{'roofline':>10}{'share':>8}{'tok/s':>9}{'generate':>12}{'continuous':>12}")
    for rows in sizes:
        whole, step = await _engine(made, rows)
        least = bytes_of_a_step(made, rows) / speed
        print(f"{rows:>6}{step * 1e3:>10.2f}{least * 1e3:>10.2f}{least / step:>8.0%}{rows / step:>9.0f}", end="")
        for peer in (StaticGenerate, partial(ContinuousBatching, blocks=_blocks(rows))):
            print(f"{await _peer(peer, made, rows, whole):>12}", end="", flush=True)
        print()


async def _engine(made: Checkpoint, rows: int) -> tuple[float, float]:
    """Seconds for all answers, prompts included, and for a step in which every row decodes."""
    own = dataclasses.replace(made, model=beside(made.model))
    engine = TorchEngine(own, EngineOptions(max_running=rows, kv_cache_gb=_gib(made, rows)))
    await engine.start()
    await _read(engine, prompts(made, rows, 1))
    begun = time.perf_counter()
    await _read(engine, prompts(made, rows, 2))
    whole = time.perf_counter() - begun
    # Once more: their prompts are in the cache now, so all rows decode before the first of them has ended.
    times_of_rows = await _read(engine, prompts(made, rows, 2))
    await engine.stop()
    return whole, _step_of(times_of_rows)


def _step_of(times_of_rows: list[list[float]]) -> float:
    """Of the times of each row's tokens: seconds a step while all rows decode."""
    first, last = max(times[0] for times in times_of_rows), min(times[-1] for times in times_of_rows)
    steps = sum(first <= at <= last for at in times_of_rows[0]) - 1
    if steps < LEAST_STEPS:
        raise RuntimeError(f"all rows decoded together for {steps} steps only, which is too few to measure")
    return (last - first) / steps


async def _peer(kind: Callable[[Any, int], Any], made: Checkpoint, rows: int, whole: float) -> str:
    """How many times longer it takes for the same answers; one at a time, or the memory would not do for all."""
    gc.collect()
    if made.model.device.type != "cpu":
        torch.cuda.empty_cache()
    try:
        peer = kind(made.model, NEW)
        try:
            await peer.run(prompts(made, rows, 3))
            return f"{await peer.run(prompts(made, rows, 4)) / whole:.2f}x"
        finally:
            await peer.stop()
    except (torch.OutOfMemoryError, TimeoutError) as error:
        return type(error).__name__


async def _read(engine: TorchEngine, asked: list[list[int]]) -> list[list[float]]:
    """The times of each answer's tokens."""
    jobs = [Job(str(at), tuple(prompt), NEW, sampling=Sampling(0.0)) for at, prompt in enumerate(asked)]
    return list(await asyncio.gather(*(_told(stream) for stream in engine.submit(jobs))))


async def _told(stream: Any) -> list[float]:
    return [time.perf_counter() async for event in stream if isinstance(event, Delta) for _ in event.tokens]


def _blocks(rows: int) -> int:
    """Pages of 16 tokens: room for the rows and half as much again, so that no row waits for memory."""
    return 3 * rows * (CONTEXT + NEW) // 32 + 4 * CONTEXT // 16


def _gib(made: Checkpoint, rows: int) -> float:
    config = made.model.config
    token = 2 * config.num_hidden_layers * kv_heads(config) * head_size(config) * made.model.dtype.itemsize
    return _blocks(rows) * 16 * token / (1 << 30)


def _settle(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def run(shapes: list[str], device: str, sizes: tuple[int, ...] = SIZES) -> None:
    for shape in shapes:
        asyncio.run(measure(shape, device, sizes))
