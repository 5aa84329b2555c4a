from __future__ import annotations

import pytest
import torch
from transformers import LlamaConfig

from models import cpu_dtype
from models.cpu_dtype import CLEARLY, SMALL, faster_dtype, speedup_of_bfloat16

CONFIG = LlamaConfig(hidden_size=64, intermediate_size=128)


@pytest.mark.parametrize(("speedup", "expected"), [(CLEARLY, torch.bfloat16), (CLEARLY - 0.01, torch.float32)])
def test_bfloat16_is_used_where_it_is_clearly_faster(
    monkeypatch: pytest.MonkeyPatch, speedup: float, expected: torch.dtype
) -> None:
    monkeypatch.setattr(cpu_dtype, "speedup_of_bfloat16", lambda hidden, inner: speedup)
    assert faster_dtype(CONFIG, SMALL) is expected


def test_small_models_stay_float32_without_a_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_dtype, "speedup_of_bfloat16", lambda hidden, inner: pytest.fail("it was measured"))
    assert faster_dtype(CONFIG, SMALL - 1) is torch.float32


def test_speedup_is_measured_with_the_products_of_the_model() -> None:
    assert 0 < speedup_of_bfloat16(64, 128) < 1000
