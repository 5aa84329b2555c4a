"""Each answer is that of its own adapter, whatever stands beside it and whatever memory there is."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import random
import threading

import pytest
import torch

from models.engine import EngineOptions, TorchEngine
from models.interface.generation import FinishReason
from models.weights import Kind, Products, replace_layers
from models.weights.int8 import why_not
from tests.unit.models import lora, tiny
from tests.unit.models.engine.conftest import Oracle
from tests.unit.models.engine.reading import job, read
from tests.unit.models.engine.schedules import SURE

KINDS = [
    {},
    {"rank": 8, "targets": lora.ATTENTION},
    {"rank": 1, "targets": ("v_proj",)},
    {"use_rslora": True},
    {"rank": 2, "rank_pattern": {"q_proj": 6}, "alpha_pattern": {"q_proj": 3.0}},
    {"rank": 16, "lora_alpha": 4},
    {"targets": ("gate_proj", "down_proj")},
    {"rank": 3, "targets": ("layers.1.self_attn.o_proj",)},
]


class Tenants:
    """A model with eight adapters of different shapes, and what each says by itself."""

    def __init__(self, folder, device="cpu"):
        made = tiny.checkpoint()
        self.checkpoint = dataclasses.replace(made, model=made.model.to(device))
        self.files = [lora.save(folder / f"a{n}", self.checkpoint.model, n, **kind) for n, kind in enumerate(KINDS)]
        self.oracles = {"": Oracle(self.checkpoint)} | {
            files.name: Oracle(
                dataclasses.replace(self.checkpoint, model=lora.merged(self.checkpoint.model, files.folder))
            )
            for files in self.files
        }

    async def engine(self, **options):
        engine = TorchEngine(self.checkpoint, EngineOptions(**({"threads": 1} | options)), adapters=self.files)
        await engine.start()
        return engine

    def right(self, name, prompt, answer):
        truth = self.oracles[name].answer(tuple(prompt), 24)[: len(answer.tokens)]
        wrong = next((at for at, token in enumerate(answer.tokens) if token != truth[at]), None)
        return wrong is None or self.oracles[name].margin(prompt, truth[:wrong]) < SURE


@pytest.fixture(scope="module")
def tenants(tmp_path_factory):
    return Tenants(tmp_path_factory.mktemp("adapters"))


async def test_eight_adapters_and_the_base_model_in_one_batch_each_say_what_they_say_alone(tenants):
    engine = await tenants.engine()
    chance = random.Random(1)
    asks = [
        (name, tuple(chance.randrange(5, 300) for _ in range(chance.randrange(2, 60))))
        for name in [*tenants.oracles] * 3
    ]
    warm = [job((5, 6), 1, adapter=name) for name in tenants.oracles]
    await asyncio.gather(*map(read, engine.submit(warm)))  # otherwise early answers end before the last adapter is read
    width = []
    route = engine._runner.lora.route
    engine._runner.lora.route = lambda parts: width.append(len({p.sequence.job.adapter for p in parts})) or route(parts)
    answers = await asyncio.gather(*map(read, engine.submit([job(prompt, 24, adapter=name) for name, prompt in asks])))
    assert all(tenants.right(name, prompt, answer) for (name, prompt), answer in zip(asks, answers, strict=True))
    assert len({tuple(answer.tokens) for answer in answers}) == len(asks)
    assert max(width) == 9, "all of them in one step"
    await engine.stop()


async def test_one_prompt_is_cached_for_each_adapter_apart(tenants):
    engine = await tenants.engine()
    prompt = range(10, 60)
    for _, name in itertools.product(range(2), tenants.oracles):
        answer = await read(engine.submit([job(prompt, 8, adapter=name)])[0])
        assert tenants.right(name, tuple(prompt), answer)
    again = await read(engine.submit([job(prompt, 8, adapter="a0")])[0])
    other = await read(engine.submit([job(prompt, 8, adapter="a0", tenant="other")])[0])
    assert (again.end.usage.cached_tokens, other.end.usage.cached_tokens) == (48, 0)
    await engine.stop()


async def test_adapters_beyond_the_memory_are_given_up_and_loaded_again(tenants):
    sizes = [(files.folder / "adapter_model.safetensors").stat().st_size for files in tenants.files]
    engine = await tenants.engine(adapters_gb=1.3 * max(sizes) / (1 << 30))
    held = engine._runner.lora.held
    most, chance = 0, random.Random(2)

    async def ask(name):
        nonlocal most
        prompt = tuple(chance.randrange(5, 300) for _ in range(20))
        await asyncio.sleep(chance.random() * 0.1)
        stream = engine.submit([job(prompt, 24, adapter=name)])[0]
        if chance.random() < 0.2:
            asyncio.get_running_loop().call_later(chance.random() * 0.1, stream.cancel)
        answer = await read(stream)
        most = max(most, sum(delta.nbytes for adapter in list(held.values()) for delta in adapter.values()))
        assert answer.reason in {FinishReason.LENGTH, FinishReason.CANCELLED}
        assert tenants.right(name, prompt, answer)

    await asyncio.gather(*(ask(name) for name in [*tenants.oracles] * 5))
    assert 0 < most <= 1.3 * max(sizes)
    assert len(held) < len(tenants.files)
    assert not any(engine._adapters._holders.values())
    await engine.stop()
    assert engine.pool.in_use == 0


async def test_what_waits_for_memory_goes_on_when_the_last_answer_that_held_it_ends(tenants):
    """The other adapter has been read before that end, so no message follows it."""
    sizes = {files.name: (files.folder / "adapter_model.safetensors").stat().st_size for files in tenants.files}
    first, second = sorted(sizes, key=sizes.__getitem__)[-2:]
    engine = await tenants.engine(adapters_gb=1.01 * sizes[second] / (1 << 30))
    for _ in range(5):
        jobs = [job(range(10, 30), 60, adapter=first), job(range(10, 30), 2, adapter=second)]
        long, short = engine.submit(jobs)
        answers = await asyncio.wait_for(asyncio.gather(read(long), read(short)), 60)
        assert {answer.reason for answer in answers} == {FinishReason.LENGTH}
    await engine.stop()


async def test_a_bad_adapter_fails_its_own_requests_and_nobody_elses(tenants, tmp_path):
    wide = tiny.checkpoint(hidden_size=128).model
    misfit = lora.save(tmp_path / "misfit", wide)
    changed = lora.save(tmp_path / "changed", tenants.checkpoint.model)
    lora.save(tmp_path / "changed", tenants.checkpoint.model, seed=9)
    files = [*tenants.files, misfit, changed]
    engine = TorchEngine(tenants.checkpoint, EngineOptions(threads=1), adapters=files)
    await engine.start()
    prompt = tuple(range(10, 40))
    names = ["a1", "misfit", "", "changed", "unknown", "a2", "misfit"]
    answers = await asyncio.gather(*map(read, engine.submit([job(prompt, 24, adapter=name) for name in names])))
    reported = {name: answer for name, answer in zip(names, answers, strict=True) if answer.reason == "model_not_found"}
    assert reported.keys() == {"misfit", "changed", "unknown"}
    assert (
        "does not fit the model: model.layers.0.mlp.down_proj is 96 to 64, not 96 to 128"
        in reported["misfit"].end.message
    )
    assert "restart the worker" in reported["changed"].end.message
    for name, answer in zip(names, answers, strict=True):
        assert name in reported or tenants.right(name, prompt, answer)
    await engine.stop()


async def test_an_adapter_larger_than_all_adapters_may_be_is_refused(tenants):
    engine = await tenants.engine(adapters_gb=1e-6)
    answer = await read(engine.submit([job(range(10, 20), 4, adapter="a0")])[0])
    assert answer.reason == "model_not_found"
    assert "adapters_gb" in answer.end.message
    await engine.stop()


async def test_a_deadline_and_a_stop_end_what_waits_for_its_adapter(tenants, monkeypatch):
    reading, release = threading.Event(), threading.Event()

    def blocked(*_):
        reading.set()
        release.wait(20)
        raise OSError("too late")

    monkeypatch.setattr("models.engine.adapters.load_adapter", blocked)
    engine = await tenants.engine()
    streams = engine.submit([job(range(10, 20), 4, adapter="a0"), job(range(10, 20), 4, adapter="a1")])
    asyncio.get_running_loop().call_later(0.2, streams[0].cancel, FinishReason.DEADLINE)
    await asyncio.to_thread(reading.wait)
    streams[1].cancel()
    first, second = await asyncio.gather(*map(read, streams))
    assert (first.reason, second.reason) == (FinishReason.DEADLINE, FinishReason.CANCELLED)
    release.set()
    await engine.stop()


async def test_half_precision_mixes_as_well(tmp_path):
    made = tiny.checkpoint()
    made = dataclasses.replace(made, model=made.model.to(torch.bfloat16))
    files = [lora.save(tmp_path / f"h{n}", made.model, n) for n in range(2)]
    engine = TorchEngine(made, EngineOptions(threads=1), adapters=files)
    await engine.start()
    jobs = [job(range(10, 40), 8, adapter=name) for name in ("h0", "h1", "")]
    answers = await asyncio.gather(*map(read, engine.submit(jobs)))
    alone = [await read(engine.submit([one])[0]) for one in jobs]
    assert [answer.tokens for answer in answers] == [answer.tokens for answer in alone]
    assert len({tuple(answer.tokens) for answer in answers}) == 3
    await engine.stop()


@pytest.mark.parametrize("kind", [Kind.PACKED, Kind.INT8])
async def test_layers_in_another_form_have_their_adapters(tmp_path, kind):
    if kind is Kind.INT8 and (reason := why_not(torch.device("cpu"))):
        pytest.skip(reason)
    made = tiny.checkpoint()
    files = [lora.save(tmp_path / f"f{n}", made.model, n) for n in range(2)]
    merged = {one.name: Oracle(dataclasses.replace(made, model=lora.merged(made.model, one.folder))) for one in files}
    replace_layers(made.model, Products(kind, kind), torch.float32)
    engine = TorchEngine(made, EngineOptions(threads=1), adapters=files)
    await engine.start()
    jobs = [job(range(10, 40), 8, adapter=name) for name in ("f0", "f1", "")]
    answers = await asyncio.gather(*map(read, engine.submit(jobs)))
    alone = [await read(engine.submit([one])[0]) for one in jobs]
    assert [answer.tokens for answer in answers] == [answer.tokens for answer in alone]
    assert len({tuple(answer.tokens) for answer in answers}) == 3
    if kind is Kind.PACKED:
        for one, answer in zip(jobs[:2], answers, strict=False):
            assert answer.tokens == merged[one.adapter].answer(tuple(one.prompt), 8)
    await engine.stop()
