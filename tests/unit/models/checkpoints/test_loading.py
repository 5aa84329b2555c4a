import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from models.checkpoints.loading import CheckpointError, GenerationDefaults, load_checkpoint
from models.engine import EngineOptions, TorchEngine
from models.interface.generation import Job, Sampling
from tests.unit.models import tiny


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return tiny.save(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def folder(saved, tmp_path):
    shutil.copytree(saved, tmp_path / "tiny")
    return tmp_path / "tiny"


def change_config(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def load(folder, **options):
    return load_checkpoint(str(folder), device="cpu", **options)


def test_a_folder_is_loaded_with_its_defaults_and_ends(folder):
    checkpoint = load(folder)
    assert checkpoint.defaults == GenerationDefaults(temperature=0.7, top_p=0.9, top_k=0)
    assert checkpoint.eos == {0}
    assert checkpoint.context_length == 512
    assert checkpoint.model.dtype is torch.float32
    assert checkpoint.model_version.startswith("tiny@")


def test_the_version_names_the_bytes(folder):
    before = load(folder).model_version
    assert load(folder).model_version == before
    weights = load_file(folder / "model.safetensors")
    weights["model.norm.weight"] = weights["model.norm.weight"] + 1
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    assert load(folder).model_version != before


def test_a_context_may_be_shorter_but_not_longer_than_the_models(folder):
    assert load(folder, context_length=100).context_length == 100
    with pytest.raises(CheckpointError, match="context_length=513, but the model has 512"):
        load(folder, context_length=513)
    assert load(folder, context_length=513, may_be_shorter=True).context_length == 512


def test_dynamic_rope_is_served_only_up_to_the_length_where_it_does_not_depend_on_the_batch(folder):
    change_config(
        folder,
        rope_parameters={
            "rope_type": "dynamic",
            "factor": 4.0,
            "rope_theta": 1e4,
            "original_max_position_embeddings": 128,
        },
    )
    assert load(folder).context_length == 128


@pytest.mark.parametrize("name", ["./nowhere", "/nowhere/at/all", "a/b/c"])
def test_a_folder_that_is_not_there_is_told(name):
    with pytest.raises(CheckpointError, match="there is no such folder"):
        load_checkpoint(name)


def test_other_weight_formats_are_not_read(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"no \*\.safetensors"):
        load(folder)


def break_header(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])


def drop_tensor(folder):
    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def drop_tokenizer(folder):
    for path in folder.glob("tokenizer*"):
        path.unlink()


@pytest.mark.parametrize(
    "spoil",
    [
        break_header,
        drop_tensor,
        drop_tokenizer,
        lambda folder: (folder / "config.json").write_text("{"),
        lambda folder: (folder / "tokenizer.json").write_text("{"),
        lambda folder: (folder / "generation_config.json").write_text("{"),
        lambda folder: (folder / "config.json").unlink(),
        lambda folder: change_generation(folder, eos_token_id="0"),
        lambda folder: change_generation(folder, eos_token_id=[0, None]),
        lambda folder: change_config(folder, model_type="no-such-model"),
        lambda folder: change_config(folder, hidden_size=128),
        lambda folder: change_config(folder, layer_types=["full_attention", "linear_attention"]),
        lambda folder: change_config(folder, kv_lora_rank=16),
        lambda folder: change_config(folder, is_encoder_decoder=True),
    ],
)
def test_what_cannot_be_served_right_is_refused_with_one_line(folder, spoil):
    spoil(folder)
    with pytest.raises(CheckpointError) as refused:
        load(folder)
    assert str(refused.value).startswith(f"model {folder}: ")
    assert "\n" not in str(refused.value)


def test_a_device_that_is_not_there_is_told(folder):
    with pytest.raises(CheckpointError, match="device nonsense cannot be used"):
        load_checkpoint(str(folder), device="nonsense")


def change_generation(folder, **changes):
    path = folder / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_generation_config_gives_every_default_that_is_implemented(folder):
    change_generation(folder, temperature=0.6, top_p=0.95, top_k=20, min_p=0.05, repetition_penalty=1.05)
    assert load(folder).defaults == GenerationDefaults(0.6, 0.95, 20, 0.05, 1.05)


async def test_greedy_answer_with_a_repetition_penalty_equals_transformers(folder):
    change_generation(folder, do_sample=False, temperature=None, top_p=None, repetition_penalty=1.1)
    checkpoint = load(folder)
    prompt = checkpoint.tokenizer("where is my order 4711").input_ids
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    right = model.generate(torch.tensor([prompt]), max_new_tokens=40)[0, len(prompt) :].tolist()
    plain = model.generate(torch.tensor([prompt]), max_new_tokens=40, repetition_penalty=1.0)[0, len(prompt) :].tolist()
    assert right != plain
    defaults = checkpoint.defaults
    sampling = Sampling(defaults.temperature, repetition_penalty=defaults.repetition_penalty)
    engine = TorchEngine(checkpoint, EngineOptions(threads=1, pages=200))
    await engine.start()
    stream = engine.submit([Job(id="j", prompt=tuple(prompt), max_tokens=40, sampling=sampling)])[0]
    tokens = [token async for event in stream for token in getattr(event, "tokens", ())]
    await engine.stop()
    assert tokens == (right[: right.index(0)] if 0 in right else right)


def test_key_of_the_generation_config_that_is_not_applied_is_kept(folder):
    change_generation(folder, no_repeat_ngram_size=3, min_new_tokens=0, max_new_tokens=2048, stop_strings=["</end>"])
    assert load(folder).ignored == {"no_repeat_ngram_size": 3, "max_new_tokens": 2048, "stop_strings": ["</end>"]}


def test_a_numeric_type_of_its_own_is_another_version() -> None:
    """A fleet in which some CPUs compute in bfloat16, and some do not, ends a resumed answer as partial."""
    full, half = (load_checkpoint("demo", device="cpu", dtype=dtype) for dtype in ("float32", "bfloat16"))
    assert half.model_version.removesuffix("+kernels") == f"{full.model_version}+bfloat16-by-row-cpu"
    assert "+" not in full.model_version
