import logging

import pytest
import torch

from models.checkpoints.loading import load_checkpoint
from models.weights.int4 import Int4Weight
from models.weights.layer import ServedLinear
from tests.unit.models import tiny
from tests.unit.models.weights.quantized.packer import Format, quantize_checkpoint


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def make_gptq(tmp_path):
    """A tiny checkpoint in a format, and a plain model with the weights that it stands for."""

    def make(form: Format, dtype="auto", forms=None, **changes):
        folder = tiny.save(tmp_path / str(form), **changes)
        plain = tiny.model(**changes)
        plain.load_state_dict(quantize_checkpoint(folder, forms or {}, form), strict=False)
        return load_checkpoint(str(folder), device="cpu", dtype=dtype), plain

    return make


@pytest.fixture
def warned(caplog):
    caplog.set_level(logging.WARNING, logger="models.weights")
    return lambda: [record.getMessage() for record in caplog.records if record.name.startswith("models.weights")]


def random_weight(device):
    """[64, 256] in groups of 64."""
    chance = torch.Generator().manual_seed(1)
    quants = torch.randint(0, 16, (64, 256), dtype=torch.uint8, generator=chance)
    scales, zeros = torch.rand(2, 4, 64, generator=chance)
    return Int4Weight(quants, scales, zeros, 64, device)


def layers_in(model, kind):
    """Layers of `model` whose weight is of that kind."""
    return [one for one in model.modules() if isinstance(one, ServedLinear) and isinstance(one.matrix, kind)]
