"""Each family of models: loaded from files, as transformers answers, with adapters, in four bits, in a form."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch
from tokenizers import Tokenizer

from models.checkpoints.loading import load_checkpoint
from models.engine import EngineOptions, TorchEngine
from models.files.errors import CheckpointError
from models.interface.generation import ConstraintKind, Delta, End, Job, OutputConstraint, Sampling
from tests.unit.models import lora, tiny
from tests.unit.models.families import FAMILIES, Family
from tests.unit.models.matrix import COLUMNS, PAGE
from tests.unit.models.weights.quantized.packer import Format, quantize_checkpoint

PROMPT = [7, 40, 90, 3, 250, 61, 7, 8, 9, 300, 12] * 4
TOKENS = 16
SCHEMA = {
    "type": "object",
    "properties": {"a": {"enum": ["x", "yes"]}, "b": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
TEXTS = ("hello big world, grüße 🙂", " a", "a  b", "12345", "<|user|>x<|end|>")
served = pytest.mark.parametrize("family", [name for name, one in FAMILIES.items() if not one.refused])


def made(family: Family) -> Any:
    return tiny.model(family.kind, **family.changes)


def saved(folder: Path, model: Any) -> Path:
    model.save_pretrained(folder)
    tiny.tokenizer().save_pretrained(folder)
    return folder


@asynccontextmanager
async def engine_of(folder: Path, *adapters: Any) -> AsyncIterator[TorchEngine]:
    checkpoint = load_checkpoint(str(folder), device="cpu", dtype="float32")
    engine = TorchEngine(checkpoint, EngineOptions(threads=1, pages=200), adapters=adapters)
    await engine.start()
    try:
        yield engine
    finally:
        await engine.stop()


async def answer(engine: TorchEngine, **fields: Any) -> tuple[list[int], str, End]:
    asked = Job("a", tuple(PROMPT), **{"max_tokens": TOKENS, "min_tokens": TOKENS, "sampling": Sampling(0.0)} | fields)
    (stream,) = engine.submit([asked])
    events = [event async for event in stream]
    assert isinstance(events[-1], End), events[-1]
    tokens = [token for event in events if isinstance(event, Delta) for token in event.tokens]
    return tokens, "".join(event.text for event in events), events[-1]


def greedy(model: Any) -> list[int]:
    """As transformers generates."""
    ids = torch.tensor([PROMPT])
    whole = model.generate(ids, max_new_tokens=TOKENS, min_new_tokens=TOKENS, do_sample=False, pad_token_id=4)
    return list(whole[0, len(PROMPT) :].tolist())


@served
async def test_loads_and_answers_as_transformers(family: str, tmp_path: Path) -> None:
    model = made(FAMILIES[family])
    async with engine_of(saved(tmp_path, model)) as engine:
        assert (await answer(engine))[0] == greedy(model)


@pytest.mark.parametrize("family", [name for name, one in FAMILIES.items() if one.refused])
async def test_what_is_not_served_is_one_line(family: str, tmp_path: Path) -> None:
    one = FAMILIES[family]
    folder = saved(tmp_path, made(one))
    with pytest.raises(CheckpointError, match=one.refused) as refused:
        async with engine_of(folder):
            pass
    assert "\n" not in str(refused.value)


@served
def test_ids_are_those_of_the_file(family: str, tmp_path: Path) -> None:
    loaded = load_checkpoint(str(saved(tmp_path, made(FAMILIES[family]))), device="cpu").tokenizer
    right = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for text in TEXTS:
        assert loaded(text, add_special_tokens=False).input_ids == right.encode(text, add_special_tokens=False).ids


@served
async def test_an_answer_keeps_to_its_schema(family: str, tmp_path: Path) -> None:
    constraint = OutputConstraint(ConstraintKind.JSON, json.dumps(SCHEMA))
    async with engine_of(saved(tmp_path, made(FAMILIES[family]))) as engine:
        for seed in range(4):
            sampling = Sampling(seed=seed)
            _, text, end = await answer(engine, max_tokens=160, min_tokens=0, sampling=sampling, constraint=constraint)
            assert end.reason == "stop"
            jsonschema.validate(json.loads(text), SCHEMA)


@served
async def test_an_adapter_answers_as_the_merged_model(family: str, tmp_path: Path) -> None:
    model = made(FAMILIES[family])
    targets = [name for name in lora.ALL if any(path.endswith(name) for path, _ in model.named_modules())]
    files = lora.save(tmp_path / "own", model, targets=targets or ["qkv_proj", "o_proj"])
    async with engine_of(saved(tmp_path / "model", model), files) as engine:
        assert (await answer(engine, adapter="own"))[0] == greedy(lora.merged(model, tmp_path / "own"))
        assert (await answer(engine))[0] == greedy(model)


@served
async def test_four_bits_answer_as_what_they_stand_for(family: str, tmp_path: Path) -> None:
    plain = made(FAMILIES[family])
    saved(tmp_path, plain)
    plain.load_state_dict(quantize_checkpoint(tmp_path, {}, Format(bits=4)), strict=False)
    async with engine_of(tmp_path) as engine:
        assert (await answer(engine))[0] == greedy(plain)


def test_the_page_has_every_family_and_every_question() -> None:
    rows = [line.split(" | ") for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    head = next(row for row in rows if row[0] == "| family")
    assert head[1:-1] == [*COLUMNS], "make matrix"
    table = {row[0].removeprefix("| "): row[1:-1] for row in rows if len(row) == len(head) and row is not head}
    assert [*table] == [*FAMILIES], "make matrix"
    assert {cell for cells in table.values() for cell in cells} <= {"yes", "-"}
