"""Each row is computed in one way, bit for bit, whatever is beside it and in whatever pieces its text comes.

For every form of the products that a worker may choose on a CPU, with kernels between them and without, at sizes at
which libraries take other code for other numbers of rows.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor

from models.checkpoints.loading import Checkpoint
from models.compute.attention import Context
from models.compute.cache import KVCache
from models.compute.fused import cache_dtype
from models.compute.pages import PagePool
from models.engine.runner import Runner
from models.engine.sequence import ScheduledChunk, SequenceState
from models.files.adapters import load_adapter
from models.interface.generation import Job
from models.interface.token_stream import TokenStream
from models.kernels import library
from models.machine import measurements
from models.weights import Kind, Products, replace_layers
from models.weights.int4 import Int4Weight
from models.weights.int4 import why_not as why_not_int4
from models.weights.int8 import onednn_why_not, why_not
from models.weights.matrix import matrix_of, product
from models.weights.rows import Rows, rows_of
from models.weights.threads import computing_threads
from tests.unit.models import lora, tiny
from tests.unit.models.engine.schedules import ARCHITECTURES

FLOAT32, BFLOAT16 = torch.float32, torch.bfloat16
FORMS = {
    "float32": (Products(), FLOAT32),
    "float32 packed": (Products(Kind.PACKED, Kind.PACKED), FLOAT32),
    "bfloat16": (Products(), BFLOAT16),
    "bfloat16 packed": (Products(Kind.PACKED, Kind.PACKED), BFLOAT16),
    "stored": (Products(Kind.STORED, Kind.STORED), FLOAT32),
    "stored, bfloat16": (Products(Kind.STORED, Kind.STORED), FLOAT32),
    "int8": (Products(Kind.INT8, Kind.INT8), FLOAT32),
    "int8 by oneDNN": (Products(Kind.INT8_ONEDNN, Kind.INT8_ONEDNN), FLOAT32),
    "int8 vocabulary, float32": (Products(Kind.PLAIN, Kind.INT8), FLOAT32),
    "int8 vocabulary, bfloat16 packed": (Products(Kind.PACKED, Kind.INT8), BFLOAT16),
}
SIZES = {
    "hidden_size": 640,
    "intermediate_size": 2048,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 256,
    "query_pre_attn_scalar": 256,
}
"""Those of Gemma 3 270M, at which oneDNN computes a lone row by code of its own in float32 and in bfloat16."""
FAMILIES = ("gemma3_text", "llama", "phi3")
"""The last one is computed by transformers' layers."""
SHAPES = ((1536, 640), (4096, 640), (640, 2048), (192, 64), (3072, 128), (4096, 4096))
COUNTS = (1, 2, 3, 4, 5, 7, 9, 15, 17, 31, 33, 100, 257)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """That number, for which rows are looked for by default: with more, other numbers of rows have other bits."""
    with computing_threads(1):
        yield


def form(name: str) -> tuple[Products, torch.dtype]:
    if "int8" in name and (reason := why_not(torch.device("cpu"))):
        pytest.skip(reason)
    if "oneDNN" in name and (reason := onednn_why_not()):
        pytest.skip(reason)
    return FORMS[name]


def in_form(family: str, name: str) -> Checkpoint:
    products, dtype = form(name)
    sizes = {key: size for key, size in SIZES.items() if family == "gemma3_text" or key != "query_pre_attn_scalar"}
    if family == "phi3":
        sizes["head_dim"] = 160
        sizes["num_key_value_heads"] = 2
    made = tiny.checkpoint(kind=family, **(ARCHITECTURES[family] | sizes))
    stored = BFLOAT16 if name == "stored, bfloat16" else dtype
    try:
        replace_layers(made.model.to(stored), products, dtype)
    except (RuntimeError, AttributeError) as error:
        pytest.skip(f"this CPU or torch has no such products: {error}")
    return made


@dataclass
class Reading:
    """Texts that are computed in pieces, alone or beside others."""

    runner: Runner
    pool: PagePool
    prompts: list[tuple[int, ...]]

    @classmethod
    def of(cls, made: Checkpoint) -> Reading:
        pool, model = PagePool(200, 16), made.model
        chance = random.Random(3)
        prompts = [tuple(chance.randrange(5, 320) for _ in range(length)) for length in (50, 9, 33, 17, 1, 1)]
        return cls(Runner(made, KVCache(model.config, 200, model.device, cache_dtype(model)), pool), pool, prompts)

    @torch.inference_mode()
    def logits(self, cuts: list[int], beside: int, adapters: tuple[str, ...] = ("",)) -> Tensor:
        """After the first text, which comes in the pieces between `cuts`, beside so many others. They have `adapters`
        in turns.
        """
        jobs = [Job("r", one, 1, adapter=adapters[at % len(adapters)]) for at, one in enumerate(self.prompts)]
        sequences = [SequenceState(one, TokenStream(lambda *_: None), 0, 0.0, 99) for one in jobs]
        for sequence in sequences:
            sequence.pages = self.pool.allocate(4) or []
        for start, end in itertools.pairwise(cuts):
            parts = [ScheduledChunk(sequences[0], start, end - start)]
            parts += [ScheduledChunk(one, 0, len(one.tokens)) for one in sequences[1 : 1 + beside]]
            batch = self.runner.pack(parts)
            at = [part.sequence for part in batch.order].index(sequences[0])
            self.runner.lora.route(batch.order)
            found = self.runner.compute(Context(batch, self.runner.cache))[at]
        for sequence in sequences:
            self.runner.scrub(sequence.free(self.pool, forget=True))
        return found


@pytest.mark.parametrize("by_kernels", [True, False], ids=["kernels", "no kernels"])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", FORMS)
def test_logits_are_bit_for_bit_those_of_any_schedule(
    name: str, family: str, by_kernels: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if by_kernels and (family == "phi3" or library.load()):
        pytest.skip("no kernels")
    if not by_kernels:
        monkeypatch.setattr(library, "load", lambda: "they are off")
    reading = Reading.of(in_form(family, name))
    whole = reading.logits([0, 50], 0)
    for cuts, beside in [([0, 50], 5), ([0, 20, 37, 50], 0), ([0, 20, *range(40, 51)], 0), ([0, 49, 50], 5)]:
        assert torch.equal(reading.logits(cuts, beside), whole), (cuts, beside)


@pytest.mark.parametrize(("family", "by_kernels"), [("llama", True), ("llama", False), ("phi3", False)])
@pytest.mark.parametrize("name", ["float32", "bfloat16 packed", "stored, bfloat16", "int8"])
def test_adapters_change_nothing_but_their_own_answers(
    name: str, family: str, by_kernels: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if by_kernels and library.load():
        pytest.skip("no kernels")
    if not by_kernels:
        monkeypatch.setattr(library, "load", lambda: "they are off")
    made = in_form(family, name)
    reading = Reading.of(made)
    plain = reading.logits([0, 50], 0)
    targets = ("qkv_proj", "down_proj") if family == "phi3" else lora.ALL
    for adapter, rank, own in (("a", 8, targets), ("b", 3, targets[1:]), ("c", 16, targets)):
        files = lora.save(tmp_path / adapter, made.model, rank, rank=rank, targets=own)
        like = torch.empty(0, dtype=made.model.dtype)
        reading.runner.lora.hold(adapter, load_adapter(files, reading.runner.lora.layers, like))
    assert torch.equal(reading.logits([0, 20, 49, 50], 5, ("", "a", "b", "c")), plain)
    alone = {one: reading.logits([0, 50], 0, (one,)) for one in "ab"}
    assert len({tuple(one.tolist()) for one in (plain, *alone.values())}) == len((plain, *alone))
    assert torch.equal(reading.logits([0, 20, 49, 50], 5, ("a", "", "b", "c")), alone["a"])
    assert torch.equal(reading.logits([0, 20, 49, 50], 3, ("b", "b", "a", "c", "")), alone["b"])
    reading.runner.lora.drop("a")
    assert torch.equal(reading.logits([0, 50], 2, ("b", "c", "")), alone["b"]), "one that was held before is gone"


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("kind", "dtype"), [*itertools.product((Kind.PLAIN, Kind.PACKED), (FLOAT32, BFLOAT16))])
def test_a_product_has_rows_that_are_the_same_alone_and_among_others(
    kind: Kind, dtype: torch.dtype, shape: tuple[int, int]
) -> None:
    chance = torch.Generator().manual_seed(1)
    try:
        one = matrix_of(torch.randn(shape, generator=chance), None, kind, dtype)
        rows = rows_of([one])
    except (RuntimeError, AttributeError) as error:
        pytest.skip(f"this CPU or torch has no such products: {error}")
    given = torch.randn(300, shape[1], generator=chance).to(dtype)
    whole = product(given, one.parts, [], None, *rows)
    for count, first in itertools.product(COUNTS, (0, 1, 6, 40)):
        part = product(given[first : first + count], one.parts, [], None, *rows)
        assert torch.equal(part, whole[first : first + count]), (count, first)


@pytest.mark.parametrize("rows", [Rows(), Rows(3), Rows(16, 16), Rows(2, 7)], ids=str)
def test_however_many_rows_are_multiplied_at_once_all_come_back(rows: Rows) -> None:
    weight, given = torch.randn(5, 8), torch.randn(50, 8)
    for count in (1, 2, 3, 7, 8, 16, 17, 50):
        found = product(given[:count], [weight], [], None, *rows)
        torch.testing.assert_close(found, given[:count] @ weight.t())


def test_a_library_that_differs_with_many_rows_is_asked_for_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def product_by_other_code(given: Tensor, parts: list[Tensor], *_: object) -> Tensor:
        many = 1e-3 if len(given) > 100 else 0.0
        return given @ parts[0].t() + many

    monkeypatch.setattr("models.weights.rows.product", product_by_other_code)
    monkeypatch.setattr(measurements, "read", lambda _subject: {})
    monkeypatch.setattr(measurements, "keep", lambda *_: None)
    assert rows_of([matrix_of(torch.randn(48, 24), None, Kind.PLAIN, FLOAT32)]) == Rows(16, 16)


def test_integers_of_four_bits_have_one_kernel_for_any_number_of_rows() -> None:
    outputs, inputs, device = 256, 256, torch.device("cpu")
    if reason := why_not_int4(outputs, inputs, 128, device, BFLOAT16):
        pytest.skip(reason)
    chance = torch.Generator().manual_seed(1)
    quants = torch.randint(0, 16, (outputs, inputs), dtype=torch.uint8, generator=chance)
    scales, zeros = torch.rand(2, 2, outputs, generator=chance)
    weight = Int4Weight(quants, scales, zeros, 128, device)
    given = torch.randn(300, inputs, generator=chance).bfloat16()
    whole = weight.times(given)
    for count in COUNTS:
        assert torch.equal(weight.times(given[3 : 3 + count]), whole[3 : 3 + count]), count
