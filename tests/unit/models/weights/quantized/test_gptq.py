"""Logits of GPTQ checkpoints against the weights that they stand for, in float32."""

import itertools

import pytest
import torch

from models.checkpoints.arithmetic import Wanted, without_what_is_slower
from models.weights import int4
from models.weights.gptq_loading import Slot
from models.weights.int4 import GptqWeight
from tests.unit.models.weights.quantized.conftest import layers_in, random_weight
from tests.unit.models.weights.quantized.packer import Format

FORMATS = [
    Format(bits, sym, act_order, version)
    for bits, sym, act_order, version in itertools.product((4, 8), (True, False), (True, False), ("gptq", "gptq_v2"))
]
IDS = torch.tensor([[(31 * n * n + 7 * n + 5) % 300 for n in range(120)]])  # more rows than the kernel takes alone


def logits(model, ids=IDS):
    with torch.inference_mode():
        return model(ids, use_cache=False).logits[0].float()


def differ(one, other):
    return float((one - other).norm() / other.norm())


@pytest.mark.parametrize("form", FORMATS, ids=str)
def test_dequantized_layers_compute_what_the_format_stands_for(make_gptq, form):
    checkpoint, plain = make_gptq(form, dtype="float32")
    ours, theirs = logits(checkpoint.model), logits(plain)
    assert differ(ours, theirs) < 1e-5
    assert torch.equal(ours.argmax(-1), theirs.argmax(-1))


@pytest.mark.parametrize("form", FORMATS, ids=str)
def test_packed_layers_are_as_near_as_bfloat16_is(make_gptq, warned, form):
    checkpoint, plain = make_gptq(form)
    assert len(layers_in(checkpoint.model, GptqWeight)) == 14
    assert warned() == []
    theirs = logits(plain)
    bfloat16 = differ(logits(plain.to(torch.bfloat16)), theirs)
    ours = logits(checkpoint.model)
    assert differ(ours, theirs) < 1.7 * bfloat16
    sure = (theirs.topk(2).values.diff().abs() > 0.05 * theirs.abs().max()).squeeze(-1)
    assert sure.sum() > 40
    assert torch.equal(ours.argmax(-1)[sure], theirs.argmax(-1)[sure])


def test_the_kernel_and_the_unpacked_blocks_say_the_same(make_gptq):
    checkpoint, _ = make_gptq(Format(sym=False, act_order=True))
    few = torch.cat([logits(checkpoint.model, IDS[:, :70])])
    assert differ(logits(checkpoint.model)[:70], few) < 0.02


def test_modules_may_differ_in_bits_and_group_size(make_gptq):
    forms = {"up_proj": Format(8, sym=False, group_size=-1), "layers.1.self_attn": Format(8, group_size=16)}
    checkpoint, plain = make_gptq(Format(4, group_size=64, act_order=True), dtype="float32", forms=forms)
    assert differ(logits(checkpoint.model), logits(plain)) < 1e-5
    assert checkpoint.model_version.removesuffix("+kernels").endswith("+gptq4+8")


def test_layers_with_a_bias_keep_it(make_gptq):
    checkpoint, plain = make_gptq(Format(), dtype="float32", kind="qwen2")
    assert plain.model.layers[0].self_attn.q_proj.bias is not None
    assert differ(logits(checkpoint.model), logits(plain)) < 1e-5


@pytest.mark.parametrize(("dtype", "reason"), [("float32", "runs in float32"), ("float16", "runs in float16")])
def test_a_layer_without_a_fast_kernel_is_told(make_gptq, warned, dtype, reason):
    make_gptq(Format(), dtype=dtype)
    (line,) = warned()
    assert line.startswith("14 of 14 quantized layers have no fast kernel")
    assert reason in line


def test_groups_too_small_for_the_kernel_are_told(make_gptq, warned):
    checkpoint, plain = make_gptq(Format(group_size=16))
    assert "groups of 16" in " ".join(warned())
    assert layers_in(checkpoint.model, GptqWeight) == []
    assert differ(logits(checkpoint.model), logits(plain)) < 0.02


def test_packed_weights_take_a_quarter_of_the_memory(make_gptq):
    checkpoint, plain = make_gptq(Format(group_size=-1))
    layer = checkpoint.model.model.layers[0].mlp.up_proj
    assert layer.matrix.nbytes < 0.35 * plain.model.layers[0].mlp.up_proj.weight.numel() * 2
    assert not any(isinstance(module, Slot) for module in checkpoint.model.modules())


@pytest.mark.parametrize("is_understood", [True, False])
def test_a_weight_that_is_packed_in_tiles_is_unpacked(monkeypatch, is_understood):
    """As a GPU packs it, but in an order of our own: it is found, whatever it is."""
    order = torch.randperm(1024, generator=torch.Generator().manual_seed(2))

    def pack(quants):
        outputs, inputs = quants.shape
        tiles = quants.view(outputs // 8, 8, inputs // 128, 128).transpose(1, 2).reshape(-1, 1024)
        pairs = tiles[:, order if is_understood else order.clamp_max(9)].view(-1, 512, 2)
        return (pairs[..., 0] | pairs[..., 1] << 4).view(torch.int32).view(outputs // 8, inputs // 128, 32, 4)

    plain = random_weight(torch.device("cpu"))
    monkeypatch.setattr(int4, "_pack", pack)
    int4._order_in_tile.cache_clear()
    whole = random_weight(torch.device("cpu")).unpacked()
    int4._order_in_tile.cache_clear()
    if not is_understood:
        assert whole is None
        return
    given = torch.eye(256, dtype=torch.bfloat16)
    assert torch.allclose(whole.float(), plain.times(given).T.float(), rtol=0.01, atol=0.05)


def test_int8_is_left_out_on_a_gpu(caplog):
    wanted = Wanted(quantize="int8")
    assert without_what_is_slower(wanted, torch.device("cuda")) == Wanted()
    assert "slower than bfloat16" in caplog.text
    assert without_what_is_slower(wanted, torch.device("cpu")) is wanted
    assert without_what_is_slower(Wanted(quantize="fp8"), torch.device("cuda")).quantize == "fp8"
