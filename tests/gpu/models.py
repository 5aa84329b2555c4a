"""Models of random weights, and reading what an engine answers with them."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Sequence
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from models.checkpoints.loading import Checkpoint
from models.engine import TorchEngine
from models.interface.generation import Delta, Failure, Job, Sampling
from models.weights.gptq import Layer
from models.weights.int4 import GptqWeight
from models.weights.layer import ServedLinear
from models.weights.replacing import put
from tests.gpu.scale import Scale
from tests.unit.models import tiny

GROUP = 128


def checkpoint(scale: Scale, shape: str, device: str, context: int) -> Checkpoint:
    fields = tiny.SIZES | {"vocab_size": 320} | scale.shapes[shape] | {"max_position_embeddings": context}
    config = AutoConfig.for_model("llama", eos_token_id=0, pad_token_id=4, bos_token_id=None, **fields)
    torch.manual_seed(0)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
    made = tiny.checkpoint()
    return dataclasses.replace(
        made, name=shape, model=model.requires_grad_(requires_grad=False), eos=frozenset(), context_length=context
    )


def pack_in_four_bits(model: Any) -> None:
    """Random quants in the place of each linear layer of the blocks."""
    device = model.device
    for name, module in [(name, one) for name, one in model.named_modules() if ".layers." in name]:
        if isinstance(module, torch.nn.Linear):
            outputs, inputs = module.weight.shape
            shape = inputs // GROUP, outputs
            quants = torch.randint(0, 16, (outputs, inputs), dtype=torch.uint8, device=device)
            scales, zeros = torch.full(shape, 0.002, device=device), torch.full(shape, 8, device=device)
            layer = Layer(quants, scales, zeros.to(torch.uint8), GROUP, 4, None)
            put(model, name, ServedLinear(GptqWeight(layer, None, device), inputs, outputs))


def prompts(rows: int, length: int, vocabulary: int, seed: int = 1) -> list[tuple[int, ...]]:
    chance = torch.Generator().manual_seed(seed)
    return [tuple(torch.randint(5, vocabulary, (length,), generator=chance).tolist()) for _ in range(rows)]


async def times_of(engine: TorchEngine, asked: Sequence[Sequence[int]], new: int) -> list[list[float]]:
    """When each token of each answer came; greedy."""
    jobs = [Job(str(at), tuple(one), new, sampling=Sampling(0.0)) for at, one in enumerate(asked)]
    return list(await asyncio.gather(*(read_times(stream) for stream in engine.submit(jobs))))


async def read_times(stream: Any) -> list[float]:
    times: list[float] = []
    async for event in stream:
        if isinstance(event, Failure):
            raise RuntimeError(f"an answer failed: {event.message}")  # noqa: TRY004
        if isinstance(event, Delta):
            times += [time.perf_counter()] * len(event.tokens)
    return times


async def tokens_of(engine: TorchEngine, jobs: Sequence[Job]) -> list[list[int]]:
    async def read(stream: Any) -> list[int]:
        return [token async for event in stream if isinstance(event, Delta) for token in event.tokens]

    return list(await asyncio.gather(*map(read, engine.submit(jobs))))
