"""The image of workers whose engine is vLLM, and the chart's preset for it."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import yaml
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[3]
IMAGE = (ROOT / "deploy/container/vllm.Containerfile").read_text()
PRESET = yaml.safe_load((ROOT / "deploy/helm/parley/presets/vllm.yaml").read_text())


def test_the_image_is_built_on_a_vllm_that_the_extra_takes() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (wanted,) = map(Requirement, extras["vllm"])
    (tag,) = re.findall(r"^FROM vllm/vllm-openai:v([0-9.]+)$", IMAGE, re.MULTILINE)
    assert wanted.specifier.contains(tag)
    assert "PARLEY_ENGINE=vllm" in IMAGE


def test_the_preset_uses_that_image_and_as_many_gpus_as_vllm_divides_the_model_among() -> None:
    worker = PRESET["worker"]
    name, version = worker["image"].split(":")
    assert f"docker build -f deploy/container/vllm.Containerfile -t {name} ." in IMAGE
    assert version == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert worker["env"]["PARLEY_ENGINE"] == "vllm"
    assert json.loads(worker["env"]["PARLEY_VLLM_ARGS"])["tensor_parallel_size"] == worker["gpu"]["count"]
    assert worker["sharedMemory"], "vLLM's processes exchange tensors there"
