"""Files that are not whole, pickles, code of a checkpoint, and what a version is made of."""

import json
import pickle
import shutil

import pytest
from safetensors.torch import load_file, save_file

from models.checkpoints.loading import load_checkpoint
from models.files.checkpoint import CheckpointFiles
from models.files.errors import CheckpointError
from tests.unit.models import tiny

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return tiny.save(tmp_path_factory.mktemp("files") / "tiny")


@pytest.fixture
def folder(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "tiny")


def refused(folder):
    with pytest.raises(CheckpointError) as refused:
        CheckpointFiles.find(str(folder))
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize("size", [0, 4, 8, 500, -1])
def test_a_broken_off_file_is_told_with_its_sizes(folder, size):
    path = folder / "model.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:size])
    line = refused(folder)
    assert "model.safetensors" in line
    assert str(len(whole[:size])) in line
    assert "fetch it again" in line


def test_a_file_that_is_no_safetensors_is_told(folder):
    (folder / "model.safetensors").write_bytes(b"<html>" * 100)
    assert "not a safetensors file" in refused(folder)


def test_a_shard_that_is_not_there_is_told(folder):
    index = {"weight_map": {"a": "model.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "model-00002-of-00002.safetensors, which model.safetensors.index.json lists, is missing" in refused(folder)


def test_an_index_of_other_files_is_told(folder):
    weights = load_file(folder / "model.safetensors")
    one, two = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
    first = dict(list(weights.items())[:3])
    listed = {name: one if name in first else two for name in weights}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": listed}))
    (folder / "model.safetensors").rename(folder / two)
    save_file(first, folder / one)
    assert f"is in both {one} and {two}; model.safetensors.index.json is of other files" in refused(folder)
    save_file({name: weights[name] for name in [*weights][3:-1]}, folder / two)
    assert f"{[*weights][-1]} is not in {two}" in refused(folder)


def test_an_index_that_is_none_is_told(folder):
    (folder / "model.safetensors.index.json").write_text("[]")
    assert "is not an index" in refused(folder)


class Bomb:
    def __reduce__(self):
        return exec, ("raise SystemExit('the pickle ran')",)


def test_a_pickle_is_named_and_never_read(folder):
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(CheckpointError, match=r"pytorch_model.bin is a pickle, which runs code"):
        load_checkpoint(str(folder), device="cpu")


CODE = """
from transformers import LlamaConfig, LlamaForCausalLM

class OwnConfig(LlamaConfig):
    model_type = "its-own"

class OwnModel(LlamaForCausalLM):
    config_class = OwnConfig
"""


def bring_code(folder):
    (folder / "its_own.py").write_text(CODE)
    path = folder / "config.json"
    own = {"AutoConfig": "its_own.OwnConfig", "AutoModelForCausalLM": "its_own.OwnModel"}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model_type": "its-own", "auto_map": own}))


def test_code_of_a_checkpoint_is_not_run_unless_asked(folder, monkeypatch, tmp_path):
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    bring_code(folder)
    assert "trust_remote_code=true" in refused(folder)
    checkpoint = load_checkpoint(str(folder), device="cpu", remote_code=True)
    assert type(checkpoint.model).__name__ == "OwnModel"


def test_the_version_is_the_base_and_a_digest_of_its_bytes(folder):
    version = CheckpointFiles.find(str(folder)).version
    assert version.startswith("tiny@")
    assert CheckpointFiles.find(f"{folder}/").version == version
    (folder / "chat_template.jinja").write_text("changed")
    assert CheckpointFiles.find(str(folder)).version != version


def test_the_version_of_a_snapshot_of_the_hub_is_its_commit(folder, tmp_path, monkeypatch):
    asked = []

    def snapshot(repository, *, revision, allow_patterns):
        asked.append((repository, revision, "*.py" in allow_patterns))
        return str(shutil.copytree(folder, tmp_path / "snapshots" / COMMIT, dirs_exist_ok=True))

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot)
    assert CheckpointFiles.find("org/Model-1B@v2").version == "Model-1B@0123456789ab"
    assert CheckpointFiles.find("org/Model-1B", remote_code=True).version == "Model-1B@0123456789ab"
    assert asked == [("org/Model-1B", "v2", False), ("org/Model-1B", None, True)]
