"""What is read as an adapter, and what is refused with a line that says why."""

from __future__ import annotations

import json
import pickle
import shutil

import pytest
import torch
from safetensors.torch import load as read_weights
from safetensors.torch import load_file, save_file

from models.compute.lora import linear_layers
from models.files.adapter_folders import adapter_folders
from models.files.adapters import AdapterError, AdapterFiles, load_adapter
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
        ({"lora_alpha": 1e300}, "too large"),
        ({"lora_alpha": float("nan")}, "too large"),
        ({"lora_alpha": 10**400}, "OverflowError"),
        ({"alora_invocation_tokens": [1, 2]}, "alora_invocation_tokens"),
        ({"layer_replication": [[0, 2], [1, 2]]}, "layer_replication"),
        ({"use_qalora": True}, "use_qalora"),
        ({"arrow_config": {"top_k": 3}}, "arrow_config"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights"),
        ({"a_setting_of_tomorrow": "on"}, "a_setting_of_tomorrow"),
        ({"alpha_pattern": {r"((\w|\.)+)+!": 8}}, "no name of a layer"),
        ({"rank_pattern": {"(": 8}}, "no name of a layer"),
        ({"alpha_pattern": [1]}, "items"),
        ({"alpha_pattern": {"": 8}}, "no name of a layer"),
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


@pytest.mark.parametrize("config", [b"[" * 100_000, b"null", b"[]", b'"LORA"', b'{"peft_type": "LORA"}', b"\xff", b""])
def test_a_config_that_is_none_is_one_line_without_a_path(folder, model, config):
    (folder / "adapter_config.json").write_bytes(config)
    with pytest.raises(AdapterError) as refused:
        load(folder, model)
    assert str(folder) not in str(refused.value)
    assert "\n" not in str(refused.value)


def test_files_that_go_away_are_one_line_without_a_path(folder, model):
    files = AdapterFiles.find("x", folder)
    shutil.rmtree(folder)
    with pytest.raises(AdapterError, match="cannot be read") as refused:
        load_adapter(files, linear_layers(model), PLACE)
    assert str(folder) not in str(refused.value)


def test_settings_that_are_off_or_change_nothing_are_read(folder, model):
    off = {"a_setting_of_tomorrow": None, "use_qalora": False, "qalora_group_size": 16, "arrow_config": None}
    change(folder, **off, megatron_core="megatron.core", init_lora_weights="gaussian", eva_config={"rho": 2})
    assert len(load(folder, model)) == 14


@pytest.mark.parametrize(
    "pattern",
    ["down_proj", "mlp.down_proj", r"layers\.1\.mlp\.down_proj", "^model.layers.1.mlp.down_proj$", "1.mlp.down_proj"],
)
def test_a_pattern_is_a_name_or_its_end(folder, model, pattern):
    before = load(folder, model)
    change(folder, alpha_pattern={"own_proj": 1, "^mlp.down_proj": 1, pattern: 2 * lora_alpha(folder)})
    after = load(folder, model)
    module = "model.layers.1.mlp.down_proj"
    torch.testing.assert_close(after[module].up, 2 * before[module].up)
    torch.testing.assert_close(after["model.layers.1.mlp.up_proj"].up, before["model.layers.1.mlp.up_proj"].up)


def lora_alpha(folder):
    return json.loads((folder / "adapter_config.json").read_text())["lora_alpha"]
