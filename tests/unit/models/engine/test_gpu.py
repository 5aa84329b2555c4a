"""On a GPU: the kernel, the graphs and the engine over them say what the model says by itself.

`make gpu` runs them, and on a CPU tries all but those of graphs (tiny.DEVICE).
"""

import asyncio
import dataclasses

import pytest
import torch

from models.interface.generation import Sampling
from tests.unit.models import tiny
from tests.unit.models.compute.test_fused import FAMILY, both_ways, make, with_rope
from tests.unit.models.engine.conftest import Oracle
from tests.unit.models.engine.reading import job, read
from tests.unit.models.engine.schedules import ARCHITECTURES, CONTEXT, Tally, run_schedule
from tests.unit.models.engine.test_adapters import Tenants

pytestmark = pytest.mark.gpu
of_graphs = pytest.mark.skipif(tiny.DEVICE == "cpu", reason="a CPU has no CUDA graphs")


def on_gpu(architecture, dtype=torch.float32):
    made = tiny.checkpoint(
        architecture.split(maxsplit=1)[0], max_position_embeddings=CONTEXT, **ARCHITECTURES[architecture]
    )
    return dataclasses.replace(made, model=made.model.to(tiny.DEVICE, dtype))


@pytest.fixture(autouse=True)
def _exact():
    torch.backends.cuda.matmul.allow_tf32 = False


@pytest.mark.parametrize("architecture", ARCHITECTURES)
async def test_greedy_answers_are_the_models_own_in_any_schedule(architecture):
    checkpoint = on_gpu(architecture)
    tally, oracle = Tally(), Oracle(checkpoint)
    for seed in range(4 if tiny.DEVICE == "cuda" else 1):
        await run_schedule(checkpoint, oracle, seed, tally)
    assert tally.mismatches == 0


@of_graphs
@pytest.mark.parametrize("sequences", [1, 3, 8, 13])
async def test_a_graph_gives_the_logits_of_the_eager_step(engines, sequences):
    engine = await engines(on_gpu("llama"), max_running=16)
    seen = []
    runner = engine._runner
    original = runner._graphs.run

    def compared(batch):
        found = original(batch)
        if found is not None:
            seen.append(torch.equal(found.argmax(-1), runner.forward(batch).argmax(-1)))
        return found

    runner._graphs.run = compared
    jobs = [job(range(10, 30 + n), 20, sampling=Sampling(seed=n)) for n in range(sequences)]
    await asyncio.gather(*map(read, engine.submit(jobs)))
    assert len(seen) > 10
    assert all(seen)


@of_graphs
async def test_a_step_that_decodes_is_computed_by_a_graph_and_a_chunk_is_not(engines):
    engine = await engines(on_gpu("llama"), max_running=4)
    taken = []
    runner = engine._runner
    original = runner._graphs.run
    runner._graphs.run = lambda batch: taken.append(original(batch)) or taken[-1]
    await read(engine.submit([job(range(10, 60), 10)])[0])
    assert taken[0] is None
    assert all(found is not None for found in taken[1:])


@pytest.mark.parametrize(("architecture", "captured"), [("llama", True), ("phi3", False)])
async def test_angles_that_depend_on_the_length_cost_no_more_than_the_graphs(engines, architecture, captured):
    """To find out how long the batch is they are read back, which no graph can do."""
    model = with_rope(architecture, "longrope").to(tiny.DEVICE)
    checkpoint = dataclasses.replace(tiny.checkpoint(), model=model, context_length=128)
    engine = await engines(checkpoint, max_running=4)
    assert (engine._runner._graphs is not None) == (captured and tiny.DEVICE == "cuda")
    prompt = tuple(range(10, 40))
    answer = await read(engine.submit([job(prompt, 40)])[0])
    assert answer.tokens == Oracle(checkpoint).answer(prompt, 40)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there is one GPU at most")
async def test_another_gpu_than_the_first_says_the_same(engines):
    checkpoint = on_gpu("llama")
    moved = dataclasses.replace(checkpoint, model=checkpoint.model.to("cuda:1"))
    engine = await engines(moved, max_running=4)
    jobs = [job(range(10, 30 + n), 20) for n in range(4)]
    answers = await asyncio.gather(*map(read, engine.submit(jobs)))
    oracle = Oracle(moved)
    assert [one.tokens for one in answers] == [oracle.answer(tuple(asked.prompt), 20) for asked in jobs]


async def test_adapters_mixed_in_one_batch_each_say_what_they_say_alone(tmp_path):
    tenants = Tenants(tmp_path, tiny.DEVICE)
    engine = await tenants.engine()
    prompts = {name: tuple(range(10 + at, 50 + 2 * at)) for at, name in enumerate(tenants.oracles)}
    jobs = [job(prompt, 24, adapter=name) for name, prompt in prompts.items()]
    answers = await asyncio.gather(*map(read, engine.submit(jobs)))
    for (name, prompt), answer in zip(prompts.items(), answers, strict=True):
        assert tenants.right(name, prompt, answer)
    await engine.stop()


@pytest.mark.parametrize("architecture", FAMILY)
def test_the_lean_forward_is_the_models_own(architecture):
    leaner, theirs = both_ways(make(architecture).to(tiny.DEVICE))
    torch.testing.assert_close(leaner, theirs, rtol=1e-4, atol=1e-4)
