"""An answer has the same words alone and among 31 others, and after another worker has taken it over."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import random

import pytest
import torch
from torch import Tensor

from models.checkpoints.loading import Checkpoint
from models.compute.attention import Context
from models.compute.cache import KVCache
from models.compute.fused import cache_dtype
from models.compute.pages import PagePool
from models.engine import EngineOptions, TorchEngine
from models.engine.runner import Runner
from models.engine.sequence import ScheduledChunk, SequenceState
from models.interface.generation import Job, Sampling
from models.interface.token_stream import TokenStream
from models.weights import Kind, Products, replace_layers
from models.weights.int8 import onednn_why_not, why_not
from tests.unit.models import tiny
from tests.unit.models.engine.reading import GREEDY, job, read
from tests.unit.models.engine.schedules import ARCHITECTURES

FORMS = {
    "int8": Products(Kind.INT8, Kind.INT8),
    "int8 by oneDNN": Products(Kind.INT8_ONEDNN, Kind.INT8_ONEDNN),
    "int8-vocabulary": Products(Kind.PLAIN, Kind.INT8),
    "packed": Products(Kind.PACKED, Kind.PACKED),
}
BESIDE = 32
WIDER = {"hidden_size": 256, "intermediate_size": 512, "head_dim": 64}


@pytest.fixture(params=FORMS)
def products(request: pytest.FixtureRequest) -> Products:

    if "int8" in request.param and (reason := why_not(torch.device("cpu"))):
        pytest.skip(reason)
    if "oneDNN" in request.param and (reason := onednn_why_not()):
        pytest.skip(reason)
    return FORMS[request.param]


def checkpoint(family: str, products: Products) -> Checkpoint:

    made = tiny.checkpoint(kind=family, **ARCHITECTURES[family])
    try:
        replace_layers(made.model, products, torch.float32)
    except (RuntimeError, AttributeError) as error:
        pytest.skip(f"this CPU or torch has no such products: {error}")
    return made


def jobs(count: int) -> list[Job]:
    """Greedy and sampled, of different lengths."""
    chance = random.Random(7)
    return [
        job(
            [chance.randrange(5, 320) for _ in range(chance.randint(3, 60))],
            chance.randint(4, 24),
            id=str(number),
            sampling=GREEDY if number % 2 else Sampling(temperature=0.8, top_p=0.9, seed=number),
        )
        for number in range(count)
    ]


async def answers(made: Checkpoint, asked: list[Job], beside: int) -> list[list[int]]:
    engine = TorchEngine(made, EngineOptions(max_running=beside, threads=1, pages=600))
    await engine.start()
    try:
        found: list[list[int]] = []
        for first in range(0, len(asked), beside):
            part = asked[first : first + beside]
            streams = zip(engine.submit(part), part, strict=True)
            found += [one.tokens for one in await asyncio.gather(*(read(s, len(j.generated)) for s, j in streams))]
        return found
    finally:
        await engine.stop()


async def same_words(family: str, products: Products, count: int) -> int:
    made, asked = checkpoint(family, products), jobs(count)
    alone, together = [await answers(made, asked, beside) for beside in (1, BESIDE)]
    return sum(one == other for one, other in zip(alone, together, strict=True))


@pytest.mark.parametrize("family", ["llama", "gemma3_text"])
async def test_an_answer_is_the_same_alone_and_among_others(family: str, products: Products) -> None:
    assert await same_words(family, products, 2 * BESIDE) == 2 * BESIDE


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("family", ["llama", "gemma3_text"])
async def test_a_thousand_answers_are_the_same_alone_and_among_others(family: str, products: Products) -> None:
    assert await same_words(family, products, 1000) == 1000


async def test_an_answer_that_is_taken_over_goes_on_with_the_same_words(products: Products) -> None:
    asked = jobs(8)
    whole = await answers(checkpoint("llama", products), asked, BESIDE)
    rest = [
        dataclasses.replace(one, generated=tuple(tokens[: len(tokens) // 2]))
        for one, tokens in zip(asked, whole, strict=True)
    ]
    after = await answers(checkpoint("llama", products), rest, 3)
    for one, tokens, more in zip(rest, whole, after, strict=True):
        assert [*one.generated, *more] == tokens


@pytest.mark.parametrize("family", ["llama", "gemma2", "gemma3_text", "mistral sliding", "phi3"])
@pytest.mark.parametrize("kind_of_products", [Kind.INT8, Kind.INT8_ONEDNN])
@torch.inference_mode()
def test_logits_of_integers_are_bit_for_bit_those_of_any_schedule(family: str, kind_of_products: Kind) -> None:
    if reason := why_not(torch.device("cpu")) or (kind_of_products is Kind.INT8_ONEDNN and onednn_why_not()):
        pytest.skip(reason)
    kind = family.split(maxsplit=1)[0]
    made = tiny.checkpoint(kind=kind, **(ARCHITECTURES[family] | WIDER))
    replace_layers(made.model, Products(kind_of_products, kind_of_products), torch.float32)
    pool = PagePool(200, 16)
    runner = Runner(made, KVCache(made.model.config, 200, made.model.device, cache_dtype(made.model)), pool)
    chance = random.Random(3)
    prompts = [tuple(chance.randrange(5, 320) for _ in range(length)) for length in (50, 9, 33, 17)]

    def last(cuts: list[int], beside: int) -> Tensor:
        """The logits after the first prompt, which is read in pieces, while others are read beside it."""
        sequences = [SequenceState(Job("r", one, 1), TokenStream(lambda *_: None), 0, 0.0, 99) for one in prompts]
        for sequence in sequences:
            sequence.pages = pool.allocate(4) or []
        for start, end in itertools.pairwise(cuts):
            parts = [ScheduledChunk(sequences[0], start, end - start)]
            parts += [ScheduledChunk(one, 0, len(one.tokens)) for one in sequences[1 : 1 + beside]]
            batch = runner.pack(parts)
            at = [part.sequence for part in batch.order].index(sequences[0])
            found = runner.compute(Context(batch, runner.cache))[at]
        for sequence in sequences:
            runner.scrub(sequence.free(pool, forget=True))
        return found

    whole = last([0, 50], 0)
    assert torch.equal(last([0, 50], 3), whole)
    assert torch.equal(last([0, 20, 37, 50], 0), whole)
    assert torch.equal(last([0, 20, *range(21, 51)], 3), whole)
