"""Packed weights on a GPU. Written without one: `make gpu` runs them where there is one."""

import pytest
import torch

from models.checkpoints.loading import load_checkpoint
from models.engine import EngineOptions, TorchEngine
from models.weights.int4 import GptqWeight
from models.weights.narrow import NarrowWeight
from tests.unit.models import tiny
from tests.unit.models.weights.quantized.conftest import layers_in, random_weight
from tests.unit.models.weights.quantized.packer import Format, quantize_checkpoint
from tests.unit.models.weights.quantized.test_gptq import IDS, differ, logits

pytestmark = pytest.mark.gpu
SHAPE = {"hidden_size": 128, "intermediate_size": 256, "head_dim": 32}  # what the kernel's tiles divide


@pytest.mark.parametrize("form", [Format(4, act_order=True), Format(8, sym=False), Format(4, group_size=-1)], ids=str)
async def test_packed_layers_are_near_and_the_engine_serves_them(tmp_path, form):
    folder, plain = tiny.save(tmp_path / "tiny", **SHAPE), tiny.model(**SHAPE)
    plain.load_state_dict(quantize_checkpoint(folder, {}, form), strict=False)
    checkpoint = load_checkpoint(str(folder), device=tiny.DEVICE)
    assert len(layers_in(checkpoint.model, GptqWeight)) == 14
    assert differ(logits(checkpoint.model, IDS.to(tiny.DEVICE)).cpu(), logits(plain)) < 0.05
    engine = TorchEngine(checkpoint, EngineOptions(max_running=4))
    await engine.start()  # its probe compares logits, its warm-up captures graphs
    await engine.stop()


@pytest.mark.skipif(tiny.DEVICE == "cpu", reason="a CPU has none")
def test_fp8_layers_are_near(tmp_path):
    checkpoint = load_checkpoint(str(tiny.save(tmp_path / "tiny", **SHAPE)), device=tiny.DEVICE, quantize="fp8")
    assert len(layers_in(checkpoint.model, NarrowWeight)) == 14
    ours = logits(checkpoint.model, IDS.to(tiny.DEVICE)).cpu()
    assert differ(ours, logits(tiny.model(**SHAPE))) < 0.1
    assert torch.isfinite(ours).all()


@pytest.mark.skipif(tiny.DEVICE == "cpu", reason="a CPU multiplies by its own kernel")
def test_many_rows_are_multiplied_by_the_unpacked_weight():
    made = random_weight(torch.device("cuda"))
    rows = torch.randn(200, 256, device="cuda", dtype=torch.bfloat16)
    few = torch.cat([made.times(part) for part in rows.split(10)])
    assert made.unpacked() is not None
    assert differ(made.times(rows), few.float()) < 0.01
