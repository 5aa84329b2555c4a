"""What is read as an adapter, and what is refused with a line that says why."""

from __future__ import annotations

import json
import pickle
import shutil

import pytest
import torch
from safetensors.torch import load as read_weights
from safetensors.torch import load_file, save_file

from models.adapter_folders import adapter_folders
from models.adapters import AdapterError, AdapterFiles, load_adapter
from models.engine.compute.lora import linear_layers
from tests.unit.models import lora, tiny

PLACE = torch.empty(0)


@pytest.fixture(scope="module")
def model():
    return tiny.model()


@pytest.fixture
def folder(model, tmp_path):
    lora.save(tmp_path / "tuned", model)
    return tmp_path / "tuned"


def change(folder, **config):
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))


def load(folder, model):
    return load_adapter(AdapterFiles.find(folder.name, folder), linear_layers(model), PLACE)


def test_an_adapter_adds_to_every_layer_that_it_names(folder, model):
    found = load(folder, model)
    assert len(found) == 14
    delta = found["model.layers.1.mlp.down_proj"]
    weights = load_file(folder / "adapter_model.safetensors")
    up = weights["base_model.model.model.layers.1.mlp.down_proj.lora_B.weight"]
    torch.testing.assert_close(delta.up, 2 * up)  # alpha is twice the rank


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"peft_type": "LOHA"}, "only LORA"),
        ({"use_dora": True}, "use_dora"),
        ({"bias": "all"}, "bias"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"r": 9}, "rank 9"),
        ({"lora_alpha": "much"}, "much"),
    ],
)
def test_what_would_be_silently_wrong_is_refused(folder, model, config, why):
    change(folder, **config)
    with pytest.raises(AdapterError, match=why) as refused:
        load(folder, model)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("base_model.model.model.embed_tokens.lora_embedding_A", "embed_tokens"),
        ("base_model.model.lm_head.lora_A.weight", "lm_head"),
        ("base_model.model.model.layers.7.mlp.up_proj.lora_A.weight", r"layers\.7"),
        ("base_model.model.model.layers.0.self_attn.q_proj.lora_magnitude_vector", "magnitude"),
    ],
)
def test_weights_that_would_be_left_out_are_refused(folder, model, key, why):
    path = folder / "adapter_model.safetensors"
    save_file(read_weights(path.read_bytes()) | {key: torch.zeros(4, 64)}, path)
    with pytest.raises(AdapterError, match=why):
        load(folder, model)


def test_a_pickle_is_never_read(folder, model):
    class Trap:
        def __reduce__(self):
            return pytest.fail, ("a pickle was read",)

    (folder / "adapter_model.safetensors").unlink()
    (folder / "adapter_model.bin").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(AdapterError, match="pickles in particular"):
        load(folder, model)


def test_a_file_cut_short_and_numbers_that_are_none_are_refused(folder, model):
    path = folder / "adapter_model.safetensors"
    whole = path.read_bytes()
    weights = read_weights(whole)
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(AdapterError):
        load(folder, model)
    next(iter(weights.values()))[0, 0] = torch.nan
    save_file(weights, path)
    with pytest.raises(AdapterError, match="not finite"):
        load(folder, model)


def test_a_version_names_the_bytes(folder, model, tmp_path):
    first = AdapterFiles.find("x", folder).version
    shutil.copytree(folder, tmp_path / "copy")
    assert AdapterFiles.find("x", tmp_path / "copy").version == first
    change(folder, lora_alpha=3)
    assert AdapterFiles.find("x", folder).version != first


def test_adapters_are_named_one_by_one_or_by_their_folder(folder, tmp_path):
    assert adapter_folders("") == {}
    assert adapter_folders(str(tmp_path)) == {"tuned": folder}
    assert adapter_folders(f"acme/v1={folder}, {tmp_path}") == {"acme/v1": folder, "tuned": folder}
    for bad in (f"a b={folder}", f"tuned={folder},{tmp_path}", f"={folder}"):
        with pytest.raises(ValueError, match="adapter"):
            adapter_folders(bad)
    with pytest.raises(AdapterError, match="there is no adapter_config"):
        AdapterFiles.find("x", tmp_path / "nowhere")
