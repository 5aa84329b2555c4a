from __future__ import annotations

from pathlib import Path

import pytest
import torch

from models.demo.evaluate import Assistant
from models.demo.train import Plan, save, train

PLAN = Plan(steps=3, tokens=256, sample=50)


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
