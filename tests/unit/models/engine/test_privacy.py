"""Nobody can find out what another user has asked: not by `cached_tokens`, and not by the time to the first token."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from models.engine import EngineOptions, TorchEngine
from models.interface.generation import Delta, End, Job, Sampling
from tests.unit.models import tiny

LENGTH = 320
LONG = 480
"""Nearly the whole context: what is computed anew has to be seen beside what each request costs."""
SYSTEM = tuple(5 + token % 7 for token in range(48))
TRIALS = 40


@pytest.fixture
async def engine() -> AsyncIterator[TorchEngine]:
    engine = TorchEngine(tiny.checkpoint(), EngineOptions(threads=1))
    await engine.start()
    yield engine
    await engine.stop()


def text(seed: int, length: int = LENGTH) -> tuple[int, ...]:
    return tuple(random.Random(seed).choices(range(5, 25), k=length))


_ids = itertools.count()


@dataclass(frozen=True)
class Asked:
    cached: int
    """Tokens."""
    clock_s: float
    """To the first token."""
    processor_s: float
    """What the whole process has spent on the first token."""


async def ask(engine: TorchEngine, user: str, prompt: tuple[int, ...], *, tenant: str = "", shared: int = 0) -> Asked:
    job = Job(
        f"{user}/{next(_ids)}",
        prompt,
        2,
        user=user,
        tenant=tenant,
        shared=shared,
        sampling=Sampling(temperature=0),
    )
    clock, processor = time.perf_counter(), time.process_time()
    clock_s = processor_s = 0.0
    cached = -1
    async for event in engine.submit([job])[0]:
        if isinstance(event, Delta) and not clock_s:
            clock_s, processor_s = time.perf_counter() - clock, time.process_time() - processor
        if isinstance(event, End):
            cached = event.usage.cached_tokens
    return Asked(cached, clock_s, processor_s)


@pytest.mark.parametrize("tenant", ["", "acme"])
async def test_equal_and_unequal_texts_of_another_user_have_the_same_cached_tokens(
    engine: TorchEngine, tenant: str
) -> None:
    secret = SYSTEM + text(1)
    await ask(engine, "ann", secret, tenant=tenant, shared=len(SYSTEM))
    equal = await ask(engine, "bob", secret, tenant=tenant, shared=len(SYSTEM))
    unequal = await ask(engine, "eve", SYSTEM + text(2), tenant=tenant, shared=len(SYSTEM))
    nearly = await ask(engine, "joe", secret[:-1], tenant=tenant, shared=len(SYSTEM))
    assert equal.cached == unequal.cached == nearly.cached == len(SYSTEM), "the service's own words are everybody's"


async def test_own_text_is_cached_and_the_same_user_id_of_another_tenant_is_another_user(engine: TorchEngine) -> None:
    secret = text(1)
    await ask(engine, "ann", secret, tenant="acme")
    again = await ask(engine, "ann", secret, tenant="acme")
    other = await ask(engine, "ann", secret, tenant="else")
    assert again.cached >= LENGTH - 16
    assert other.cached == 0


async def test_page_that_holds_a_word_of_the_user_is_not_shared(engine: TorchEngine) -> None:
    prompt = SYSTEM + text(1)
    await ask(engine, "ann", prompt, shared=len(SYSTEM) - 1)
    bob = await ask(engine, "bob", prompt, shared=len(SYSTEM) - 1)
    assert bob.cached == len(SYSTEM) - 16


async def test_time_to_the_first_token_does_not_tell_an_equal_text_from_another(engine: TorchEngine) -> None:
    """How often a draw of one kind is slower than a draw of the other: one half, if the two cannot be distinguished.

    On a busy machine the clock tells of the neighbours, and a leak would be lost among them. The processor's time does
    not depend on them; a user's own text, which is distinguished, shows that it tells of what is cached.
    """
    asked = await asked_by_kind(engine)
    processor = {kind: [one.processor_s for one in some] for kind, some in asked.items()}
    clock = {kind: [one.clock_s for one in some] for kind, some in asked.items()}
    assert slower(processor["unequal"], processor["own"]) > 0.75
    assert 0.2 < slower(processor["unequal"], processor["equal"]) < 0.8
    assert 0.2 < slower(clock["unequal"], clock["equal"]) < 0.8


async def asked_by_kind(engine: TorchEngine) -> dict[str, list[Asked]]:
    asked: dict[str, list[Asked]] = {"equal": [], "unequal": [], "own": []}
    for trial in range(TRIALS):
        secret = text(10_000 + trial, LONG)
        await ask(engine, f"ann{trial}", secret)
        kinds = [
            ("equal", f"bob{trial}", secret),
            ("unequal", f"eve{trial}", text(trial, LONG)),
            ("own", f"ann{trial}", secret),
        ]
        random.Random(trial).shuffle(kinds)
        for kind, user, prompt in kinds:
            asked[kind].append(await ask(engine, user, prompt))
    return asked


def slower(some: list[float], others: list[float]) -> float:
    pairs = [(one, other) for one in some for other in others]
    return sum(one > other for one, other in pairs) / len(pairs)
