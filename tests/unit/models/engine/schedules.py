"""Random schedules: who asks what, when, and who is cancelled; compared with what the model says by itself."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass

from models.engine import EngineOptions, TorchEngine
from models.engine.scheduler import StepLimits
from models.engine.speculation.drafting import SpeculationMode
from models.engine.speculation.record import Cost
from models.interface.generation import FinishReason, Job, JobPriority
from tests.unit.models import tiny
from tests.unit.models.engine.conftest import Oracle
from tests.unit.models.engine.reading import job, read

CONTEXT = 192  # small, so that little memory is enough to start and soon too little
SURE = 1e-3  # below this gap of its two best logits the oracle itself might choose either
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


class Free(Cost):
    """Tokens cost nothing: whatever can be guessed is."""

    known = True

    def of(self, tokens: float) -> float:
        return 1.0

    def each(self) -> float:
        return 0.0


@dataclass
class Ask:
    job: Job
    truth: list[int]
    cancel: float | None  # after so many seconds
    delay: float


@dataclass
class Tally:
    answers: int = 0
    tokens: int = 0
    mismatches: int = 0
    unsure: int = 0
    cached: int = 0
    preempted: int = 0
    guessed: int = 0
    right: int = 0
    followed: int = 0


def make(architecture: str) -> tuple[tiny.Checkpoint, Oracle]:
    checkpoint = tiny.checkpoint(
        architecture.split(maxsplit=1)[0], max_position_embeddings=CONTEXT, **ARCHITECTURES[architecture]
    )
    return checkpoint, Oracle(checkpoint)


async def run_schedule(
    checkpoint: tiny.Checkpoint, oracle: Oracle, seed: int, tally: Tally, *, speculative: bool = False
) -> None:
    """One engine with odd limits, a dozen conversations with common beginnings, some cut short."""
    chance = random.Random(seed)
    tight = seed % 2 == 0  # too many at once for the memory there is, so sequences are preempted
    sequences, headroom, pages = (12, 0, 14) if tight else chance.choice([(2, 0, 14), (8, 32, 20), (12, 0, 400)])
    limits = StepLimits(sequences, chance.choice([5, 24, 64]), chance.choice([24, 300]), headroom)
    mode = SpeculationMode.AUTO if speculative else SpeculationMode.OFF
    draft = checkpoint if speculative and seed % 3 else None
    engine = TorchEngine(
        checkpoint,
        EngineOptions(
            limits.max_running,
            threads=1,
            pages=pages,
            limits=limits,
            speculation=mode,
            draft=draft,
            overlaps=seed % 4 > 1,
        ),
    )
    await engine.start()
    if engine.speculation is not None:
        engine.speculation.cost = Free()
    trunk = [chance.randrange(5, 300) for _ in range(120)]

    def invent() -> Ask:
        prompt = tuple(
            trunk[: chance.randrange(60)] + [chance.randrange(5, 300) for _ in range(chance.randrange(1, 30))]
        )
        count = chance.randrange(1, 41)
        truth = oracle.answer(prompt, 40)[:count]
        generated = tuple(truth[: chance.choice([0, 0, 0, count // 2])])
        priority, user = chance.choice(list(JobPriority)), chance.choice("ab")
        cancel = chance.random() * 0.02 if chance.random() < 0.15 else None
        scored = 2 if len(prompt) % 5 == 0 else None
        made = job(prompt, count, generated=generated, priority=priority, user=user, prompt_logprobs=scored)
        return Ask(made, truth, cancel, chance.random() * 0.02)

    async def one(ask: Ask) -> None:
        await asyncio.sleep(ask.delay)
        stream = engine.submit([ask.job])[0]
        if ask.cancel is not None:
            asyncio.get_running_loop().call_later(ask.cancel, stream.cancel)
        answer = await read(stream, len(ask.job.generated))
        assert answer.reason in ([FinishReason.CANCELLED] if ask.cancel is not None else []) + [FinishReason.LENGTH]
        if ask.job.prompt_logprobs is not None and not ask.job.generated and answer.tokens:
            assert [one.token for one in answer.prompt_logprobs] == list(ask.job.prompt[1:])
        found = [*ask.job.generated, *answer.tokens]
        tally.answers += 1
        tally.tokens += len(answer.tokens)
        tally.cached += getattr(answer.end.usage, "cached_tokens", 0)
        wrong = next((at for at, token in enumerate(found) if token != ask.truth[at]), None)
        if wrong is not None:
            sure = oracle.margin(ask.job.prompt, ask.truth[:wrong]) > SURE
            tally.mismatches += sure
            tally.unsure += not sure

    # the oracle blocks the event loop, so it speaks before anybody is asked
    await asyncio.gather(*map(one, [invent() for _ in range(12)]))
    tally.preempted += engine.scheduler.preempted
    tally.followed += engine.times.followed
    tally.guessed += engine.speculation.guessed if engine.speculation is not None else 0
    tally.right += engine.speculation.right if engine.speculation is not None else 0
    await engine.stop()
    engine.pool.check()
    assert engine.pool.in_use == 0
