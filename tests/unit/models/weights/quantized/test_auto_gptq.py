"""Checkpoints that auto-gptq 0.7.1 wrote itself (tests/fixtures/gptq/make.py), held to what its own layers answered."""

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig

from models.checkpoints.loading import load_checkpoint
from models.engine import EngineOptions, TorchEngine
from models.interface.generation import Delta, Job, Sampling
from models.weights.gptq_loading import gptq_config, load_gptq
from models.weights.int4 import GptqWeight

FIXTURES = Path(__file__).parents[4] / "fixtures" / "gptq"


def expected(name):
    expected = json.loads((FIXTURES / name / "expected.json").read_text())
    return list(zip(expected["prompts"], expected["answers"], strict=True))


def load(name, dtype):
    folder = FIXTURES / name
    config = AutoConfig.from_pretrained(folder)
    form = gptq_config(folder, config)
    return load_gptq(folder, config, form, dtype, torch.device("cpu"), remote_code=False)


def greedy(model, prompt):
    given = torch.tensor([prompt])
    seen = torch.ones_like(given)
    with torch.inference_mode():
        written = model.generate(given, attention_mask=seen, do_sample=False, max_new_tokens=32, pad_token_id=0)
    return written[0, len(prompt) :].tolist()


@pytest.mark.parametrize(("name", "called"), [("demo-4bit", "gptq4"), ("random-8bit", "gptq8")])
def test_dequantized_weights_answer_as_auto_gptq_does(name, called):
    model, info, version = load(name, torch.float32)
    assert version == called
    assert not info["missing_keys"]
    for prompt, answer in expected(name):
        assert greedy(model, prompt) == answer


def test_packed_weights_answer_as_auto_gptq_does():
    model, _, _ = load("demo-4bit", torch.bfloat16)
    assert isinstance(model.model.layers[0].mlp.down_proj.matrix, GptqWeight)
    assert model.model.layers[0].mlp.down_proj.matrix.order is not None  # a real act-order
    for prompt, answer in expected("demo-4bit"):
        assert greedy(model, prompt) == answer


async def test_the_engine_answers_all_of_them_at_once():
    checkpoint = load_checkpoint(str(FIXTURES / "demo-4bit"), device="cpu")
    engine = TorchEngine(checkpoint, EngineOptions(max_running=8, threads=1))
    await engine.start()
    asked = expected("demo-4bit")
    jobs = [Job(str(n), tuple(prompt), 32, sampling=Sampling(temperature=0.0)) for n, (prompt, _) in enumerate(asked)]
    try:
        for (_, answer), stream in zip(asked, engine.submit(jobs), strict=True):
            events = [event async for event in stream]
            generated = [token for event in events if isinstance(event, Delta) for token in event.tokens]
            assert generated == [token for token in answer if token not in checkpoint.eos]
    finally:
        await engine.stop()
