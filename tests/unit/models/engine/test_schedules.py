import asyncio
import random

import pytest

from models.engine import EngineOptions, TorchEngine
from models.engine.scheduler import StepLimits
from models.interface.generation import FinishReason, Sampling
from tests.unit.models import tiny
from tests.unit.models.engine.conftest import plug
from tests.unit.models.engine.reading import job, read
from tests.unit.models.engine.schedules import ARCHITECTURES, Tally, make, run_schedule


@pytest.mark.parametrize("architecture", ARCHITECTURES)
async def test_greedy_answers_are_the_models_own_in_any_schedule(architecture):
    checkpoint, oracle = make(architecture)
    tally = Tally()
    for seed in (0, 3):
        await run_schedule(checkpoint, oracle, seed, tally)
    assert tally.mismatches == 0
    assert tally.unsure <= 2
    assert tally.tokens > 150
    assert tally.preempted > 0
    assert tally.followed > 0


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("first", range(100, 300, 25))
async def test_greedy_answers_are_the_models_own_in_hundreds_of_schedules(architecture, first):
    checkpoint, oracle = make(architecture)
    tally = Tally()
    for seed in range(first, first + 25):
        await run_schedule(checkpoint, oracle, seed, tally)
    print(architecture, first, tally)
    assert tally.mismatches == 0
    assert tally.preempted > 0
    assert tally.cached > 0
    assert tally.followed > 0


class Chaos:
    """Random operations on one engine, some sequences of which fail; every stream is read to its end."""

    def __init__(self, seed):
        self.chance = random.Random(seed)
        self.open = []
        self.readers = []
        self.reasons = {}

    async def follow(self, stream, generated):
        answer = await read(stream, generated)
        self.open.remove(stream)
        self.reasons[str(answer.reason)] = self.reasons.get(str(answer.reason), 0) + 1

    def submit(self, engine):
        chance = self.chance
        jobs = []
        for _ in range(chance.randrange(1, 4)):
            prompt = [chance.randrange(2) + 5] * chance.randrange(0, 60) + [chance.randrange(5, 319)]
            jobs.append(
                job(
                    prompt if chance.random() > 0.03 else [],
                    chance.randrange(1, 30),
                    generated=tuple(chance.randrange(5, 300) for _ in range(chance.choice([0, 0, 3]))),
                    sampling=Sampling(chance.choice([0.0, 1.0]), seed=chance.randrange(99)),
                    stop=chance.choice([(), ("a",), ("zz", "q")]),
                    user=chance.choice("abc"),
                    tenant=chance.choice("xy"),
                    priority=chance.choice([0, 1, 2]),
                )
            )
        for stream, made in zip(engine.submit(jobs), jobs, strict=True):
            self.open.append(stream)
            if chance.random() < 0.2:
                late_s = chance.random() * 0.2
                asyncio.get_running_loop().call_later(late_s, stream.cancel, FinishReason.DEADLINE)
            self.readers.append(asyncio.ensure_future(self.follow(stream, len(made.generated))))

    async def run(self, operations, *, overlaps):
        limits = StepLimits(8, 24, 64, 8)
        checkpoint = tiny.checkpoint(num_hidden_layers=1, hidden_size=32, max_position_embeddings=128)
        options = EngineOptions(8, max_waiting=40, threads=1, pages=30, limits=limits, overlaps=overlaps)
        engine = TorchEngine(checkpoint, options)
        await engine.start()
        model, fails = engine._runner.model, random.Random(1)

        def flaky(**arguments):
            if arguments["input_ids"].shape[1] > 1 and fails.random() < 0.02:
                raise RuntimeError("a kernel failed")
            found = model(**arguments)
            if fails.random() < 0.02:
                found.logits[0, fails.randrange(found.logits.shape[1])] = float("nan")
            return found

        plug(engine, flaky)
        for number in range(operations):
            if self.open and self.chance.random() < 0.3:
                self.chance.choice(self.open).cancel()
            else:
                self.submit(engine)
            if number % 3 == 0:
                await asyncio.sleep(self.chance.choice([0, 0.003]))
            while len(self.open) > 50:
                await asyncio.sleep(0.003)
        await asyncio.gather(*self.readers)
        assert not engine._open
        await engine.stop()
        assert (engine.times.followed > 0) is overlaps
        engine.pool.check()
        assert engine.pool.in_use == 0
        assert not engine.scheduler.running
        assert not engine.scheduler.waiting


@pytest.mark.parametrize("overlaps", [False, True])
@pytest.mark.parametrize("operations", [600, pytest.param(10_000, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])])
async def test_random_operations_leave_no_page_behind_and_end_every_stream_once(operations, overlaps):
    chaos = Chaos(operations)
    await chaos.run(operations, overlaps=overlaps)
    print(chaos.reasons)
    assert {"stop", "length", "cancelled", "engine_error"} <= set(chaos.reasons)
    assert sum(chaos.reasons.values()) == len(chaos.readers)
