"""Random schedules: who asks what, when, and who is cancelled; compared with what the model says by itself."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass

from models.engine import EngineOptions, TorchEngine
from models.engine.scheduler import Limits
from models.generation import FinishReason, Priority
from tests.unit.models import tiny
from tests.unit.models.engine.conftest import Oracle
from tests.unit.models.engine.reading import job, read

SURE = 1e-3  # below this gap of its two best logits the oracle itself might have said either
ARCHITECTURES = {
    "llama": {},
    "qwen2": {},
    "qwen2 sliding": {"use_sliding_window": True, "sliding_window": 24, "max_window_layers": 1},
    "qwen3": {},
    "mistral": {"sliding_window": None},
    "mistral sliding": {"sliding_window": 24},
    "phi3": {"sliding_window": None},
    "phi3 sliding": {"sliding_window": 24},
    "gemma2": {"sliding_window": 24, "query_pre_attn_scalar": 16},
    "gemma3_text": {
        "sliding_window": 24,
        "num_hidden_layers": 3,
        "query_pre_attn_scalar": 16,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
    },
}


@dataclass
class Tally:
    answers: int = 0
    tokens: int = 0
    mismatches: int = 0
    unsure: int = 0
    cached: int = 0
    preempted: int = 0


def make(architecture: str) -> tuple[tiny.Checkpoint, Oracle]:
    checkpoint = tiny.checkpoint(architecture.split(maxsplit=1)[0], **ARCHITECTURES[architecture])
    return checkpoint, Oracle(checkpoint)


async def run_schedule(checkpoint: tiny.Checkpoint, oracle: Oracle, seed: int, tally: Tally) -> None:
    """One engine with odd limits, a dozen conversations with common beginnings, some cut short."""
    chance = random.Random(seed)
    limits = Limits(
        chance.choice([2, 5, 12]), chance.choice([5, 24, 64]), chance.choice([24, 300]), chance.choice([0, 32])
    )
    pages = chance.choice([40, 60, 400])
    engine = TorchEngine(checkpoint, EngineOptions(limits.max_running, threads=1, pages=pages, limits=limits))
    await engine.start()
    trunk = [chance.randrange(5, 300) for _ in range(120)]

    async def one() -> None:
        await asyncio.sleep(chance.random() * 0.05)
        prompt = tuple(
            trunk[: chance.randrange(100)] + [chance.randrange(5, 300) for _ in range(chance.randrange(1, 60))]
        )
        count = chance.randrange(1, 25)
        truth = oracle.answer(prompt, 24)[:count]
        said = tuple(truth[: chance.choice([0, 0, 0, count // 2])])
        priority = chance.choice(list(Priority))
        stream = engine.submit([job(prompt, count, said=said, priority=priority, user=chance.choice("ab"))])[0]
        if cancelled := chance.random() < 0.15:
            asyncio.get_running_loop().call_later(chance.random() * 0.05, stream.cancel)
        answer = await read(stream, len(said))
        assert answer.reason in ([FinishReason.CANCELLED] if cancelled else []) + [FinishReason.LENGTH]
        found = [*said, *answer.tokens]
        tally.answers += 1
        tally.tokens += len(answer.tokens)
        tally.cached += getattr(answer.end.usage, "cached_tokens", 0)
        wrong = next((at for at, token in enumerate(found) if token != truth[at]), None)
        if wrong is not None:
            sure = oracle.margin(prompt, truth[:wrong]) > SURE
            tally.mismatches += sure
            tally.unsure += not sure

    await asyncio.gather(*(one() for _ in range(12)))
    tally.preempted += engine.scheduler.preempted
    await engine.stop()
    engine.pool.check()
    assert engine.pool.in_use == 0
