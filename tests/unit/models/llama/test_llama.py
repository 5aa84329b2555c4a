"""The decoders of models/llama have the logits of transformers' classes, and leave to those what they do not know."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

from models.checkpoints.loading import CheckpointError, load_checkpoint
from models.checkpoints.transformers_models import load_config
from models.compute.decoders import shape_of, turns_of
from models.engine import EngineOptions, TorchEngine
from models.files.adapters import AdapterFiles
from models.llama import LlamaDecoder, read_config
from tests.unit.models import lora, tiny
from tests.unit.models.compute.test_fused import FAMILY
from tests.unit.models.engine.reading import job, read
from tests.unit.models.engine.schedules import ARCHITECTURES

ROPES = {
    "linear": {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0},
    "llama3": {
        "rope_type": "llama3",
        "rope_theta": 100.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 128,
    },
}
GEMMA = {"kind": "gemma3_text"} | ARCHITECTURES["gemma3_text"]
GEMMA_ROPES = {
    "full_attention": ROPES["linear"],
    "sliding_attention": {"rope_type": "default", "rope_theta": 500.0},
}
CHANGES = {
    **{name: {"kind": name.split()[0]} | ARCHITECTURES[name] for name in FAMILY},
    **{f"{kind} rope": {"rope_parameters": parameters} for kind, parameters in ROPES.items()},
    "biases": {"attention_bias": True, "mlp_bias": True},
    "qwen3 biases": {"kind": "qwen3", "attention_bias": True},
    "tied": {"tie_word_embeddings": True},
    "one head": {"num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 64},
    "gemma3_text": GEMMA,
    "gemma3_text untied": GEMMA | {"tie_word_embeddings": False},
    "gemma3_text rope": GEMMA | {"rope_parameters": GEMMA_ROPES},
}
IDS = torch.tensor([[*range(5, 65)]])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
def test_logits_are_those_of_transformers(changes, dtype, tmp_path):
    tiny.save(tmp_path, **changes)
    own = load_checkpoint(str(tmp_path), device="cpu", dtype=dtype, by_transformers=False)
    theirs = load_checkpoint(str(tmp_path), device="cpu", dtype=dtype)
    assert isinstance(own.model, LlamaDecoder)
    assert not isinstance(theirs.model, LlamaDecoder)
    with torch.inference_mode():
        ours, expected = (one.model(IDS, use_cache=False).logits.float() for one in (own, theirs))
        angles = [turns_of(one.model, torch.arange(500)[None]) for one in (own, theirs)]
    off = (ours - expected).norm() / expected.norm()
    assert off < (1e-5 if dtype == "float32" else 0.03)
    assert all(map(torch.equal, *angles))
    assert shape_of(own.model) == shape_of(theirs.model)
    assert (own.eos, own.context_length, own.model_version) == (theirs.eos, theirs.context_length, theirs.model_version)
    assert (own.model.dtype, own.defaults) == (theirs.model.dtype, theirs.defaults)


@pytest.mark.parametrize("changes", [{}, CHANGES["gemma3_text untied"]], ids=["llama", "gemma"])
async def test_engine_generates_the_same_tokens_with_either_and_with_an_adapter(changes, tmp_path):
    tiny.save(tmp_path / "base", **changes)
    lora.save(tmp_path / "tuned", tiny.model(**changes))
    adapter = AdapterFiles.find("tuned", tmp_path / "tuned")
    jobs = [job(range(5, 8)), job(range(5, 45)), job(range(5, 45), adapter="tuned")]
    found = []
    for by_transformers in (True, False):
        checkpoint = load_checkpoint(str(tmp_path / "base"), device="cpu", by_transformers=by_transformers)
        engine = TorchEngine(checkpoint, EngineOptions(threads=1, pages=80), adapters=[adapter])
        await engine.start()
        try:
            found.append([(await read(stream)).tokens for stream in engine.submit(jobs)])
        finally:
            await engine.stop()
    assert found[0] == found[1]
    assert found[0][1] != found[0][2]


def rewritten(folder, **changes):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({k: v for k, v in (config | changes).items() if v != "absent"}))
    return folder


UNKNOWN = {
    "key": {"residual_multiplier": 0.5},
    "activation": {"hidden_act": "gelu"},
    "class": {"architectures": ["LlamaForSequenceClassification"]},
    "kind": {"model_type": "granite"},
    "rope type": {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}},
    "rope key": {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}},
    "default": {"num_key_value_heads": "absent"},
    "two ropes": {"rope_scaling": {"type": "linear", "factor": 2.0}},
    "rope number": {"rope_parameters": {"rope_type": "default", "rope_theta": "1e4"}},
    "switch as text": {"tie_word_embeddings": "false"},
    "switch as number": {"attention_bias": 0},
    "number as text": {"rms_norm_eps": "1e-5"},
    "end without id": {"eos_token_id": [0, None]},
    "end that is left out": {"eos_token_id": "absent"},
    "padding as text": {"pad_token_id": "0"},
    "beginning as number": {"bos_token_id": 1.0},
    "cache as number": {"use_cache": 1},
}


@pytest.mark.parametrize("changes", [{"max_window_layers": 1.5}, {"layer_types": 7}])
def test_kinds_of_layers_of_another_type_are_left_to_transformers(changes, tmp_path):
    tiny.save(tmp_path, kind="qwen2", **ARCHITECTURES["qwen2 sliding"])
    assert read_config(tmp_path) is not None
    assert read_config(rewritten(tmp_path, **changes)) is None


@pytest.mark.parametrize("changes", UNKNOWN.values(), ids=UNKNOWN)
def test_config_with_something_unknown_is_left_to_transformers(changes, tmp_path):
    tiny.save(tmp_path)
    assert read_config(tmp_path) is not None
    assert read_config(rewritten(tmp_path, **changes)) is None


GEMMA_UNKNOWN = {
    "key": {"residual_multiplier": 0.5},
    "activation": {"hidden_activation": "gelu"},
    "class": {"architectures": ["Gemma3ForConditionalGeneration"]},
    "biases": {"attention_bias": True},
    "cap of scores": {"attn_logit_softcapping": 50.0},
    "cap of logits": {"final_logit_softcapping": 30.0},
    "both directions": {"use_bidirectional_attention": True},
    "rope of a kind": {"rope_parameters": GEMMA_ROPES | {"full_attention": {"rope_type": "dynamic", "factor": 2.0}}},
    "one rope": {"rope_parameters": {"full_attention": GEMMA_ROPES["full_attention"]}},
    "rope for all": {"rope_parameters": ROPES["linear"]},
    "scaled older rope": {"rope_parameters": "absent", "rope_scaling": ROPES["linear"]},
    "rope that is no rope": {"rope_scaling": False},
    "cap that is no number": {"final_logit_softcapping": False},
    "switch as number": {"use_bidirectional_attention": 0.0},
    "end that is left out": {"eos_token_id": "absent"},
    "window": {"sliding_window": None},
    "kind of layer": {"layer_types": ["chunked_attention"] * 3},
    "layers": {"layer_types": ["full_attention"]},
    "no layers": {"layer_types": []},
    "pattern": {"layer_types": "absent", "sliding_window_pattern": 0},
    "scale as text": {"query_pre_attn_scalar": "16"},
    "default": {"head_dim": "absent"},
}


@pytest.mark.parametrize("changes", GEMMA_UNKNOWN.values(), ids=GEMMA_UNKNOWN)
def test_gemma_with_something_unknown_is_left_to_transformers(changes, tmp_path):
    tiny.save(tmp_path, **GEMMA)
    assert read_config(tmp_path) is not None
    assert read_config(rewritten(tmp_path, **changes)) is None


@pytest.mark.parametrize("pattern", [{}, {"sliding_window_pattern": 2}, {"sliding_window_pattern": 1}])
def test_gemma_as_it_was_published_has_what_transformers_reads(pattern, tmp_path):
    """Google's configs name two bases, and no kinds of layers; that of 270M says not that its head is tied."""
    tiny.save(tmp_path, kind="gemma3_text", num_hidden_layers=7)
    left_out = dict.fromkeys(
        ("layer_types", "rope_parameters", "tie_word_embeddings", "_sliding_window_pattern"), "absent"
    )
    bases = {"rope_theta": 1e6, "rope_local_base_freq": 1e4, "rope_scaling": None, "cache_implementation": "hybrid"}
    ours, theirs = read_config(rewritten(tmp_path, **left_out, **bases, **pattern)), load_config(tmp_path)
    assert ours is not None
    assert list(ours.layer_types) == theirs.layer_types
    assert [window is not None for window in ours.windows] == [kind == "sliding_attention" for kind in ours.layer_types]
    assert ours.rope_parameters == theirs.rope_parameters
    assert ours.tie_word_embeddings == theirs.tie_word_embeddings


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"model_type": ["llama"]}'])
def test_config_that_cannot_be_read_is_left_to_transformers(text, tmp_path):
    (tmp_path / "config.json").write_text(text)
    assert read_config(tmp_path) is None


def test_older_config_has_the_base_of_its_angles_beside_the_other_parameters(tmp_path):
    tiny.save(tmp_path)
    older = {"rope_type": "linear", "factor": 2.0}
    config = read_config(rewritten(tmp_path, rope_parameters="absent", rope_theta=5e5, rope_scaling=older))
    assert config is not None
    assert config.rope_parameters == {"rope_type": "linear", "factor": 2.0, "rope_theta": 5e5}


def test_broken_weights_are_reported_as_by_transformers(tmp_path):
    tiny.save(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    name = "model.layers.1.mlp.up_proj.weight"
    for changed, line in (
        ({key: value for key, value in weights.items() if key != name}, f"missing keys {name}"),
        (weights | {name: torch.zeros(3, 3)}, f"{name} is "),
    ):
        save_file(changed, tmp_path / "model.safetensors", {"format": "pt"})
        with pytest.raises(CheckpointError, match=line):
            load_checkpoint(str(tmp_path), device="cpu", by_transformers=False)


def test_tied_checkpoint_whose_head_is_another_is_computed_as_by_transformers(tmp_path):
    """Fine-tunings untie the head and keep the config; transformers then takes the head of the file."""
    tiny.save(tmp_path, tie_word_embeddings=True)
    weights = load_file(tmp_path / "model.safetensors")
    embedding = weights["model.embed_tokens.weight"]
    for head, is_own in ((embedding.clone(), True), (embedding.flip(0), False)):
        save_file(weights | {"lm_head.weight": head}, tmp_path / "model.safetensors", {"format": "pt"})
        own = load_checkpoint(str(tmp_path), device="cpu", dtype="float32", by_transformers=False)
        theirs = load_checkpoint(str(tmp_path), device="cpu", dtype="float32")
        assert isinstance(own.model, LlamaDecoder) is is_own
        with torch.inference_mode():
            logits = [one.model(IDS, use_cache=False).logits for one in (own, theirs)]
        torch.testing.assert_close(*logits, rtol=1e-4, atol=1e-4)


def test_weights_do_not_change_with_the_file(tmp_path):
    tiny.save(tmp_path)
    own = load_checkpoint(str(tmp_path), device="cpu", dtype="float32", by_transformers=False)
    before = own.model(IDS).logits
    path = tmp_path / "model.safetensors"
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        file.write(bytes(path.stat().st_size // 2))
    assert torch.equal(own.model(IDS).logits, before)


def test_demo_model_is_loaded_without_what_takes_seconds_to_import():
    code = """
import sys
from models.checkpoints.loading import load_checkpoint
from models.engine import EngineOptions, TorchEngine
from models.prompts.builder import PromptBuilder
TorchEngine(load_checkpoint("demo", by_transformers=False), EngineOptions(pages=80))
heavy = {"transformers.modeling_utils", "torch._dynamo", "torch.distributed.tensor", "sympy", "scipy"}
sys.exit(", ".join(heavy & set(sys.modules)) or 0)
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, timeout=120, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
