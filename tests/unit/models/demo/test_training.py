from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.demo_model import tokenizer
from tests.demo_model.evaluate import Assistant
from tests.demo_model.network import untrained
from tests.demo_model.train import Plan, save, train

PLAN = Plan(steps=3, tokens=256, sample=50, examined=2)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def test_the_same_seed_trains_the_same_weights(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (train(PLAN, seed=7)[0].state_dict() for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert "step 3: loss" in capsys.readouterr().out


def test_what_is_trained_can_be_saved_and_asked(tmp_path: Path) -> None:
    save(*train(PLAN, seed=7), tmp_path)
    assert {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja"} <= {
        path.name for path in tmp_path.iterdir()
    }
    answers = Assistant(tmp_path, torch.float32).answers([[{"role": "user", "content": "Hi"}]])
    assert len(answers) == 1


def test_an_untrained_network_looks_back_one_and_two_tokens() -> None:
    torch.manual_seed(0)
    model = untrained(tokenizer.trained(seed=0, sample=50))
    model.set_attn_implementation("eager")
    ids = torch.randint(5, model.config.vocab_size, (1, 40))
    with torch.inference_mode():
        heads = model(input_ids=ids, output_attentions=True).attentions[0][0]
    for head, distance in ((0, 1), (1, 2)):
        assert heads[head].diagonal(-distance)[5:].mean() > 0.5


def test_attention_of_training_is_the_attention_of_transformers() -> None:
    torch.manual_seed(0)
    model = untrained(tokenizer.trained(seed=0, sample=50))
    ids = torch.randint(5, model.config.vocab_size, (3, 40))
    with torch.inference_mode():
        ours = model(input_ids=ids, use_cache=False).logits
        model.set_attn_implementation("sdpa")
        theirs = model(input_ids=ids, use_cache=False).logits
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)
