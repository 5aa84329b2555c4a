"""The kernels, for tests that call them as torch does."""

from __future__ import annotations

import pytest
import torch

from models.kernels import library, target
from models.kernels.schemas import NumberForm


@pytest.fixture(scope="session")
def kernels():
    if reason := target.why_not():
        pytest.skip(reason)
    assert library.load() is None
    return torch.ops.parley


@pytest.fixture(params=[torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def dtype(request):
    return request.param


@pytest.fixture(params=NumberForm, ids=lambda form: form.name.lower())
def form(request):
    return request.param


@pytest.fixture
def chance():
    return torch.Generator().manual_seed(7)
