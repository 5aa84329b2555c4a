"""Adapters of random weights in PEFT's format, and the models that they make of a base model."""

from __future__ import annotations

import copy
import json
import math
import re
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from models.files.adapters import AdapterFiles

ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
ALL = (*ATTENTION, "gate_proj", "up_proj", "down_proj")


def save(folder: Path, model: Any, seed: int = 0, *, rank: int = 4, targets: Any = ALL, **config: Any) -> AdapterFiles:
    """As `PeftModel.save_pretrained` writes it; strong enough that answers differ from the base model's."""
    generator = torch.Generator().manual_seed(seed)
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": 2 * rank, "target_modules": list(targets)} | config
    weights = {}
    for path, module in model.named_modules():
        if path.endswith(tuple(targets)):
            known = config.get("rank_pattern", {}).items()
            its = next((value for name, value in known if re.match(rf"(.*\.)?({name})$", path)), rank)
            down = torch.randn(its, module.in_features, generator=generator)
            up = torch.randn(module.out_features, its, generator=generator)
            weights[f"base_model.model.{path}.lora_A.weight"] = down / math.sqrt(module.in_features)
            weights[f"base_model.model.{path}.lora_B.weight"] = up * 0.4
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps(config))
    save_file(weights, folder / "adapter_model.safetensors")
    return AdapterFiles.find(folder.name, folder)


def merged(model: Any, folder: Path) -> Any:
    """The model with the adapter in its weights, which is what PEFT's `merge_and_unload` gives."""
    config, weights = (
        json.loads((folder / "adapter_config.json").read_text()),
        load_file(folder / "adapter_model.safetensors"),
    )
    made = copy.deepcopy(model)
    with torch.no_grad():
        for key in weights:
            if ".lora_A." not in key:
                continue
            path = key.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
            down, up = weights[key], weights[key.replace("lora_A", "lora_B")]
            alphas = config.get("alpha_pattern", {}).items()
            alpha = next((value for name, value in alphas if path.endswith(name)), config["lora_alpha"])
            scale = alpha / (math.sqrt(len(down)) if config.get("use_rslora") else len(down))
            layer = made.get_submodule(path)
            layer.weight += (scale * up @ down).to(layer.weight)
    return made
