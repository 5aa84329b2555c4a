"""A GGUF file is the model that it was made from, or it is refused with one line."""

import signal
import subprocess
import sys

import pytest
import torch

from models.checkpoints.loading import load_checkpoint
from models.engine import EngineOptions, TorchEngine
from models.files.checkpoint import CheckpointFiles
from models.files.errors import CheckpointError
from models.files.gguf import conversion
from models.interface.generation import Job, Sampling
from models.llama import LlamaDecoder
from tests.unit.models import tiny
from tests.unit.models.gguf import tiny_gguf

gguf = pytest.importorskip("gguf", reason="needs the extra `gguf`")

IDS = torch.tensor([[7, 40, 90, 3, 250, 61, 7, 8, 9, 300, 12] * 6])


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr("models.files.gguf.conversion.cache_folder", lambda: tmp_path / "cache")
    return tmp_path / "cache"


@pytest.fixture
def llama():
    return tiny_gguf.contents("llama", tiny_gguf.model("llama"))


def load(path, **options):
    return load_checkpoint(str(path), device="cpu", **options)


def refusal(contents, path):
    with pytest.raises(CheckpointError) as refused:
        load(contents.write(path))
    assert "\n" not in str(refused.value)
    assert str(path) in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize("by_transformers", [True, False])
@pytest.mark.parametrize("kind", tiny_gguf.ARCHITECTURES)
def test_the_logits_are_those_of_the_model_that_was_written(kind, by_transformers, tmp_path):
    made = tiny_gguf.model(kind)
    loaded = load(tiny_gguf.contents(kind, made).write(tmp_path / "x.gguf"), by_transformers=by_transformers)
    if kind.startswith("gemma") and not isinstance(loaded.model, LlamaDecoder):
        loaded.model.set_attn_implementation("eager")  # as of the model that was written
    # Gemma's norms are written with 1 added, which rounds them
    torch.testing.assert_close(loaded.model(IDS).logits, made(IDS).logits, atol=1e-4, rtol=1e-4)
    assert loaded.model.dtype is torch.float32
    assert loaded.context_length == 512
    assert loaded.eos == {0}


async def test_the_engine_answers_as_the_model_that_was_written(tmp_path):
    made = tiny_gguf.model("gemma3_text")
    path = tiny_gguf.contents("gemma3_text", made).write(tmp_path / "x.gguf")
    expected = made.generate(IDS, max_new_tokens=24, do_sample=False, pad_token_id=4)[0, IDS.shape[1] :].tolist()
    engine = TorchEngine(load(path, by_transformers=False), EngineOptions(threads=1, pages=200))
    await engine.start()
    stream = engine.submit([Job(id="a", prompt=tuple(IDS[0].tolist()), max_tokens=24, sampling=Sampling(0.0))])[0]
    ids = [token async for event in stream for token in getattr(event, "tokens", ())]
    await engine.stop()
    assert ids == expected


def test_the_tokenizer_and_the_template_are_those_of_the_file(llama, tmp_path):
    loaded = load(llama.write(tmp_path / "x.gguf")).tokenizer
    own = tiny.tokenizer()
    for text in (*tiny.CORPUS, "Ünknown\u0001 words <|end|> 42 ", "  \n\n x"):
        assert loaded(text)["input_ids"] == own(text)["input_ids"]
        assert loaded.decode(loaded(text)["input_ids"]) == text
    assert loaded.chat_template == tiny.TEMPLATE
    assert loaded.eos_token == "<|end|>"


def test_a_template_beside_a_file_without_one_is_used_and_changes_the_version(llama, tmp_path):
    del llama.values["tokenizer.chat_template"]
    path = llama.write(tmp_path / "x.gguf")
    without = CheckpointFiles.find(str(path))
    assert load(path).tokenizer.chat_template is None
    (tmp_path / "chat_template.jinja").write_text("{{ messages }}")
    assert load(path).tokenizer.chat_template == "{{ messages }}"
    assert CheckpointFiles.find(str(path)).version != without.version


def test_a_file_is_converted_once(llama, tmp_path, cache, monkeypatch):
    path = llama.write(tmp_path / "x.gguf")
    first = CheckpointFiles.find(str(path))
    monkeypatch.setattr("models.files.gguf.conversion._convert", None)
    assert CheckpointFiles.find(str(path)) == first
    assert first.version.startswith("x.gguf@")
    assert [made.name for made in cache.iterdir()] == [first.folder.name]


def test_another_template_takes_the_weights_that_are_there(llama, tmp_path, cache, monkeypatch):
    del llama.values["tokenizer.chat_template"]
    path = llama.write(tmp_path / "x.gguf")
    plain = CheckpointFiles.find(str(path)).folder
    monkeypatch.setattr("models.files.gguf.conversion._convert", None)
    folders = [plain]
    for template in ("{{ messages }}", "{{ messages }}!"):
        (tmp_path / "chat_template.jinja").write_text(template)
        folders.append(CheckpointFiles.find(str(path)).folder)
        assert load(path).tokenizer.chat_template == template
    assert len({*folders}) == 3
    assert len({(folder / "model.safetensors").stat().st_ino for folder in folders}) == 1
    (tmp_path / "chat_template.jinja").unlink()
    assert load(path).tokenizer.chat_template is None


def test_what_a_killed_conversion_leaves_is_not_used_and_goes(llama, tmp_path, cache):
    path = llama.write(tmp_path / "x.gguf")
    program = (
        "import os, sys, pathlib; from models.files.gguf import conversion\n"
        "conversion.cache_folder = lambda: pathlib.Path(sys.argv[2])\n"
        "conversion._write_model = lambda *_: os.kill(os.getpid(), 9)\n"
        "conversion.convert_gguf(pathlib.Path(sys.argv[1]))"
    )
    killed = subprocess.run([sys.executable, "-c", program, path, cache], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert [one.name.startswith(".converting-") for one in cache.iterdir()] == [True]
    folder = CheckpointFiles.find(str(path)).folder
    assert [*cache.iterdir()] == [folder]
    assert load(path).model.dtype is torch.float32


def test_a_conversion_says_where_and_how_large_and_which_others_there_are(llama, tmp_path, caplog):
    caplog.set_level("INFO", logger="models.files.gguf")
    path = llama.write(tmp_path / "x.gguf")
    first = CheckpointFiles.find(str(path)).folder
    llama.values["general.name"] = "another"
    second = CheckpointFiles.find(str(llama.write(path))).folder
    begun, done, again, _, other = caplog.messages
    assert begun == f"converting x.gguf into {first}: once, a minute or more"
    assert done.startswith("converted x.gguf in ")
    assert done.endswith(f"s: {first} has 0 MB")
    assert str(second) in again
    assert other.startswith(f"{first} (0 MB) is of another x.gguf")
    caplog.clear()
    CheckpointFiles.find(str(path))
    assert not caplog.messages


def test_quantized_weights_are_dequantized_to_bfloat16(llama, tmp_path):
    loaded = load(llama.write(tmp_path / "x.gguf", quantized="Q8_0"), dtype="bfloat16")
    eight = gguf.GGMLQuantizationType.Q8_0
    right = gguf.dequantize(gguf.quantize(llama.tensors["blk.1.ffn_up.weight"], eight), eight)
    weight = loaded.model.state_dict()["model.layers.1.mlp.up_proj.weight"]
    assert torch.equal(weight, torch.from_numpy(right).to(torch.bfloat16))


def test_every_end_of_a_turn_ends_an_answer(llama, tmp_path):
    tokens = llama.values["tokenizer.ggml.tokens"]
    llama.values["tokenizer.ggml.tokens"] = ["<|im_end|>" if token == "<|system|>" else token for token in tokens]
    llama.values["tokenizer.ggml.eot_token_id"] = 2
    assert load(llama.write(tmp_path / "x.gguf")).eos == {0, 1, 2}


@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_a_rotation_of_llama_3_is_that_of_transformers(factor, tmp_path):
    rope = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": factor, "low_freq_factor": 1.0}
    rope |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    made = tiny.model("llama", rope_parameters=rope)
    contents = tiny_gguf.contents("llama", made)
    plain = 500000.0 ** -(torch.arange(0, 16, 2) / 16)
    contents.tensors["rope_freqs.weight"] = (plain / made.model.rotary_emb.inv_freq).numpy()
    loaded = load(contents.write(tmp_path / "x.gguf"))
    torch.testing.assert_close(loaded.model(IDS).logits, made(IDS).logits, atol=1e-4, rtol=1e-4)
    contents.tensors["rope_freqs.weight"] *= 1.5
    assert "rope_freqs.weight are not those of a Llama 3" in refusal(contents, tmp_path / "y.gguf")


def test_a_linear_rotation_is_that_of_transformers(tmp_path):
    rope = {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}
    made = tiny.model("llama", rope_parameters=rope)
    contents = tiny_gguf.contents("llama", made)
    contents.values |= {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}
    loaded = load(contents.write(tmp_path / "x.gguf"))
    torch.testing.assert_close(loaded.model(IDS).logits, made(IDS).logits, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("llama.expert_count", 8, "has expert_count, which is not implemented; take the safetensors checkpoint"),
        ("llama.attention.sliding_window", 64, "attention.sliding_window"),
        ("llama.rope.scaling.type", "yarn", "rope.scaling.type is yarn"),
        ("llama.rope.dimension_count", 8, "rope.dimension_count is 8"),
        ("llama.attention.value_length", 32, "attention.value_length is 32"),
        ("llama.embedding_length", 128, "its keys say"),
        ("split.count", 3, "llama-gguf-split --merge"),
        ("tokenizer.ggml.pre", "tekken", "splits text as 'tekken' does"),
        ("tokenizer.ggml.model", "t5", "its tokenizer is 't5'"),
        ("tokenizer.ggml.eos_token_id", 5000, "eos_token_id is 5000"),
        ("tokenizer.ggml.merges", ["a b"], "tokenizer is damaged"),
    ],
)
def test_what_would_be_computed_wrongly_is_refused(llama, key, value, says, tmp_path, cache):
    llama.values[key] = value
    assert says in refusal(llama, tmp_path / "x.gguf")
    assert not list(cache.glob("*"))


def test_another_architecture_is_refused_with_what_to_do(llama, tmp_path):
    llama.architecture = "mamba"
    line = refusal(llama, tmp_path / "x.gguf")
    assert "its architecture is mamba, and only gemma2, gemma3, llama, qwen2, qwen3 are read" in line
    assert "safetensors" in line
    assert "llama-server" in line


def test_tensors_too_many_and_too_few_are_refused(llama, tmp_path):
    bias = llama.tensors["output_norm.weight"]
    llama.tensors["blk.0.attn_q.bias"] = bias
    assert "has blk.0.attn_q.bias, which is not implemented" in refusal(llama, tmp_path / "more.gguf")
    del llama.tensors["blk.0.attn_q.bias"], llama.tensors["blk.1.ffn_up.weight"]
    assert "lacks model.layers.1.mlp.up_proj.weight" in refusal(llama, tmp_path / "less.gguf")


@pytest.mark.parametrize("share", [0.0, 0.001, 0.1, 0.5, 0.99])
def test_a_broken_off_file_is_told_with_its_size(llama, share, tmp_path):
    path = llama.write(tmp_path / "x.gguf")
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(CheckpointError, match=r"fetch it again|is not a GGUF file") as refused:
        load(path)
    assert "\n" not in str(refused.value)


def test_a_folder_that_another_worker_has_made_meanwhile_is_used(llama, tmp_path, monkeypatch):
    path = llama.write(tmp_path / "x.gguf")
    convert = conversion._convert

    def slow(source, folder):
        convert(source, folder)
        monkeypatch.setattr(conversion, "_convert", convert)
        conversion.convert_gguf(source)

    monkeypatch.setattr(conversion, "_convert", slow)
    made = CheckpointFiles.find(str(path)).folder
    assert (made / "model.safetensors").is_file()
    assert [child.name for child in made.parent.iterdir()] == [made.name]
