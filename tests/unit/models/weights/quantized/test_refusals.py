"""GPTQ checkpoints that cannot be read right: one line each."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from models.checkpoints.loading import CheckpointError, load_checkpoint
from tests.unit.models import tiny
from tests.unit.models.weights.quantized.packer import Format, quantize_checkpoint

LAYER = "model.layers.1.mlp.up_proj"


@pytest.fixture
def folder(tmp_path):
    folder = tiny.save(tmp_path / "tiny")
    quantize_checkpoint(folder, {}, Format(act_order=True))
    return folder


def tell(folder, **changes):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["quantization_config"] |= changes
    path.write_text(json.dumps(config))


def grow(folder):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"vocab_size": 999}))


def change(folder, **parts):
    (path,) = folder.glob("*.safetensors")
    state = load_file(path)
    for part, to in parts.items():
        there = state.pop(f"{LAYER}.{part}")
        if to is not None:
            state[f"{LAYER}.{part}"] = to(there).contiguous()
    save_file(state, path, metadata={"format": "pt"})


def twice(folder):
    (path,) = folder.glob("*.safetensors")
    save_file({name: tensor + 1 for name, tensor in load_file(path).items()}, folder / "another.safetensors")


def rename(folder, name):
    (path,) = folder.glob("*.safetensors")
    state = {key.replace(LAYER, name): tensor for key, tensor in load_file(path).items()}
    save_file(state, path, metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (grow, r"embed_tokens.weight is \[\d+, 64\], and its config says \[999, 64\]"),
        (lambda folder: tell(folder, quant_method="awq"), "quantized with awq"),
        (lambda folder: tell(folder, checkpoint_format="marlin"), "checkpoint_format is marlin"),
        (lambda folder: tell(folder, is_marlin_format=True), "checkpoint_format is marlin"),
        (lambda folder: change(folder, qzeros=lambda q: q + 1), f"{LAYER}: its config says sym, whose zero points"),
        (twice, r"is in two of its files, and differs"),
        (lambda folder: change(folder, qweight=lambda q: q[:4]), "has 2 bits"),
        (lambda folder: change(folder, qweight=lambda q: q[:, :64]), r"is not of a layer \[96, 64\]"),
        (lambda folder: change(folder, qzeros=lambda q: q[:1]), "do not fit together"),
        (lambda folder: change(folder, scales=lambda s: s[:, :8]), "do not fit together"),
        (lambda folder: change(folder, scales=None), "has no scales"),
        (lambda folder: change(folder, g_idx=torch.zeros_like), "g_idx"),
        (lambda folder: change(folder, g_idx=lambda g: g[:32]), "g_idx"),
        (lambda folder: rename(folder, "model.layers.1.mlp.experts.0.up_proj"), "no linear layer of the model"),
        (lambda folder: rename(folder, "model.layers.7.mlp.up_proj"), "no linear layer of the model"),
    ],
)
def test_a_checkpoint_that_cannot_be_read_right_is_one_line(folder, spoil, message):
    spoil(folder)
    with pytest.raises(CheckpointError, match=message) as refused:
        load_checkpoint(str(folder), device="cpu")
    assert str(refused.value).startswith(f"model {folder}: ")
    assert "\n" not in str(refused.value)


def test_a_config_that_says_gptq_over_plain_weights_is_refused(tmp_path):
    folder = tiny.save(tmp_path / "tiny")
    (folder / "quantize_config.json").write_text(json.dumps({"bits": 4, "quant_method": "gptq"}))
    with pytest.raises(CheckpointError, match="hold no quantized layer"):
        load_checkpoint(str(folder), device="cpu")


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(("written", "said"), [("gptq", "gptq_v2"), ("gptq_v2", "gptq")])
def test_symmetric_zero_points_say_themselves_which_format_they_have(tmp_path, bits, written, said):
    folder = tiny.save(tmp_path / "tiny")
    quantize_checkpoint(folder, {}, Format(bits=bits, version=written))
    honest = load_checkpoint(str(folder), device="cpu", dtype="float32").model
    tell(folder, checkpoint_format=said)
    ids = torch.tensor([[7, 40, 90, 3]])
    assert torch.equal(
        load_checkpoint(str(folder), device="cpu", dtype="float32").model(ids).logits, honest(ids).logits
    )
