"""INT8 and FP8 weights of plain checkpoints."""

import pytest
import torch

from models.checkpoints.loading import CheckpointError, load_checkpoint
from models.engine import EngineOptions, TorchEngine
from models.kernels import library
from models.weights.int8 import why_not
from models.weights.narrow import NarrowWeight
from models.weights.replacing import held_bytes, served
from tests.unit.models import tiny
from tests.unit.models.weights.quantized.conftest import layers_in
from tests.unit.models.weights.quantized.packer import Format, quantize_checkpoint
from tests.unit.models.weights.quantized.test_gptq import IDS, differ, logits


@pytest.fixture
def folder(tmp_path):
    return tiny.save(tmp_path / "tiny", kind="qwen2")  # a kind with biases


def load(folder, **options):
    return load_checkpoint(str(folder), device="cpu", **options)


@pytest.fixture
def no_integers(monkeypatch):
    monkeypatch.setattr("models.checkpoints.arithmetic.why_not", lambda device: "an ARM has none")


@pytest.mark.skipif(why_not(torch.device("cpu")) is not None, reason="no products of integers")
@pytest.mark.parametrize("quantize", ["int8", "int8-vocabulary"])
@pytest.mark.parametrize("by_transformers", [True, False])
def test_a_cpu_multiplies_integers(folder, warned, quantize, by_transformers):
    checkpoint = load(folder, quantize=quantize, by_transformers=by_transformers)
    plain = load(folder, by_transformers=by_transformers)
    forms = {"int8": "w8a8+kernels-bfloat16-cache", "int8-vocabulary": "w8a8-vocabulary+kernels"}
    form = forms[quantize] if library.load() is None else forms[quantize].partition("+")[0]
    assert checkpoint.model_version == f"{plain.model_version}+{form}"
    assert len(list(served(checkpoint.model))) == (9 if quantize == "int8" else 1)
    assert checkpoint.model.dtype is torch.float32
    assert 0 < differ(logits_of(checkpoint.model), logits_of(plain.model)) < 0.05
    assert held_bytes(checkpoint.model) < held_bytes(plain.model)
    assert warned() == []


@torch.inference_mode()
def logits_of(model):
    return model(IDS[:1], use_cache=False).logits.float()


def test_the_vocabulary_alone_is_refused_where_there_are_no_such_products(folder, no_integers):
    with pytest.raises(CheckpointError, match="cannot be quantized to int8-vocabulary on cpu"):
        load(folder, quantize="int8-vocabulary")


@pytest.mark.parametrize("rows", [4, 120])  # by the kernel, and with the weights widened once
def test_int8_is_near_and_takes_half_the_memory(folder, warned, rows, no_integers):
    checkpoint = load(folder, quantize="int8")
    assert len(layers_in(checkpoint.model, NarrowWeight)) == 14
    assert checkpoint.model_version.endswith("+int8")
    assert differ(logits(checkpoint.model, IDS[:, :rows]), logits(tiny.model("qwen2"), IDS[:, :rows])) < 0.05
    layer = checkpoint.model.model.layers[0].mlp.up_proj
    assert layer.matrix.nbytes < 1.1 * layer.in_features * layer.out_features
    assert warned() == []


@pytest.mark.parametrize(
    ("options", "reason"), [({"quantize": "fp8"}, "float8"), ({"quantize": "int8", "dtype": "float32"}, "float32")]
)
def test_what_has_no_fast_kernel_is_told_and_still_rounded(folder, warned, options, reason, no_integers):
    checkpoint = load(folder, **options)
    assert layers_in(checkpoint.model, NarrowWeight) == []
    (line,) = warned()
    assert reason in line
    rounded = checkpoint.model.model.layers[0].mlp.up_proj.weight.float()
    plain = tiny.model("qwen2").model.layers[0].mlp.up_proj.weight
    assert 0.001 < differ(rounded, plain) < 0.05


def test_fp8_layers_compute_what_their_weights_stand_for():
    weight = torch.randn(32, 64)
    scale = weight.abs().amax(1) / 448
    layer = NarrowWeight((weight / scale[:, None]).to(torch.float8_e4m3fn), scale, torch.ones(32))
    given = torch.randn(15, 64)
    assert differ(layer.times(given), given @ weight.T + 1) < 0.05


def test_a_quantized_checkpoint_is_not_quantized_again(folder):
    quantize_checkpoint(folder, {}, Format())
    with pytest.raises(CheckpointError, match="quantized already"):
        load(folder, quantize="int8")


async def test_the_engine_serves_them(folder):
    engine = TorchEngine(load(folder, quantize="int8"), EngineOptions(max_running=4, threads=1))
    await engine.start()  # its probe compares logits
    await engine.stop()
