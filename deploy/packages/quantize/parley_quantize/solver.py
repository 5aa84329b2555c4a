"""Create a GPTQ checkpoint with GPTQModel (the extra `gptq`), on a CPU or a GPU."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from models.files.checkpoint import CheckpointFiles
from models.weights.gptq import QuantizationError
from parley_quantize.dialogues import Example

LONGEST = 2048  # tokens per calibration dialogue
BESIDE = ("*.json", "*.jinja", "*.model")


@dataclass(frozen=True, slots=True)
class Recipe:
    """Options of GPTQModel. `group_size` -1 is one group for all inputs."""

    bits: int = 4
    group_size: int = 128
    sym: bool = True
    act_order: bool = False


def quantize(name: str, out: Path, recipe: Recipe, examples: Sequence[Example]) -> None:
    """Write a GPTQ checkpoint of model `name` to `out`; progress is printed by GPTQModel.

    Raises `QuantizationError` if GPTQModel is not installed, `models.files.errors.CheckpointError` if the model
    cannot be found.
    """
    files = CheckpointFiles.find(name)
    os.environ.setdefault("GPTQMODEL_CPU_WORKERS", str(len(os.sched_getaffinity(0))))
    try:
        from gptqmodel import GPTQModel, QuantizeConfig  # type: ignore[import-not-found, unused-ignore]
    except ImportError as error:
        raise QuantizationError(f"GPTQModel is needed ({error}): install this package with its extra `gptq`") from None
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(files.folder)
    shown = []
    for example in examples:
        ids = tokenizer.apply_chat_template(example.whole(), return_dict=False)[:LONGEST]
        shown.append({"input_ids": ids, "attention_mask": [1] * len(ids)})
    config = QuantizeConfig(bits=recipe.bits, group_size=recipe.group_size, sym=recipe.sym, desc_act=recipe.act_order)
    folder, out = files.folder.absolute(), out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    with contextlib.chdir(out):  # it writes its log to `logs` in the working directory
        model = GPTQModel.load(str(folder), config)
        model.quantize(shown, batch_size=1)
        model.save(str(out))
    for path in (path for kind in BESIDE for path in folder.glob(kind)):
        if not (out / path.name).exists() and "safetensors" not in path.name:
            shutil.copy(path, out)
