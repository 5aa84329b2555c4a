"""Models of every kind that transformers knows. Importing its model classes takes seconds."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from models.checkpoints.arithmetic import Wanted, arithmetic, is_served_as_it_is, stored_dtype
from models.files.checkpoint import CheckpointFiles
from models.files.errors import CheckpointError
from models.machine.gpu import has_gpu
from models.weights.choice import FormChoice
from models.weights.int8 import why_not


@contextmanager
def unimported(*names: str) -> Iterator[None]:
    """Within the block, `names` look as if they were not installed, but for those that were imported before."""
    hidden = [name for name in names if name not in sys.modules]
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment]  # what the import system takes for "there is none"
    try:
        yield
    finally:
        for name in hidden:
            if sys.modules.get(name, name) is None:  # another thread has not imported it meanwhile
                del sys.modules[name]


# A second, for two functions of transformers that are not used here; and 0.07 GB for a compiler that needs a GPU.
_NEEDLESS = ("sklearn", "scipy") if has_gpu() else ("sklearn", "scipy", "triton")
with unimported(*_NEEDLESS):
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.utils.logging import disable_progress_bar, enable_progress_bar, is_progress_bar_enabled


def load_config(folder: Path, *, remote_code: bool = False) -> Any:
    return AutoConfig.from_pretrained(folder, trust_remote_code=remote_code)


def load_model(
    files: CheckpointFiles, config: Any, device: torch.device, wanted: Wanted, *, remote_code: bool
) -> tuple[Any, FormChoice, str]:
    """The model on its device, what is to compute it, and the name of its quantization if kernels of their own compute
    its layers.
    """
    folder = files.folder
    has_quants = bool(getattr(config, "quantization_config", None)) or (folder / "quantize_config.json").is_file()
    with _without_reports():
        if has_quants or not is_served_as_it_is(wanted, device):
            choice = arithmetic(wanted, device, config, files.weight_bytes, is_packed_already=True)
            return _quantized(folder, config, device, choice, wanted.quantize, remote_code)
        choice = arithmetic(wanted, device, config, files.weight_bytes)
        return _plain(folder, stored_dtype(choice, config), remote_code).to(device), choice, ""


def _plain(folder: Path, dtype: torch.dtype, remote_code: bool) -> Any:
    model, info = AutoModelForCausalLM.from_pretrained(
        folder,
        dtype=dtype,
        use_safetensors=True,
        trust_remote_code=remote_code,
        output_loading_info=True,
        ignore_mismatched_sizes=True,  # _check_loading reports it in one line
    )
    _check_loading(info)
    return model


def _quantized(
    folder: Path, config: Any, device: torch.device, choice: FormChoice, quantize: str, remote_code: bool
) -> tuple[Any, FormChoice, str]:
    from models.weights.gptq_loading import gptq_config, load_gptq  # only here
    from models.weights.narrow import WeightOnly, quantize_weights

    if gptq := gptq_config(folder, config):
        if quantize:
            raise CheckpointError(f"it is quantized already, and cannot be quantized to {quantize}")
        model, info, quantization = load_gptq(folder, config, gptq, choice.dtype, device, remote_code=remote_code)
        _check_loading(info)
        return model, choice, quantization
    if quantize not in set(WeightOnly):
        raise CheckpointError(f"it cannot be quantized to {quantize} on {device.type}: {why_not(device)}")
    model = _plain(folder, choice.dtype, remote_code).to(device)
    quantize_weights(model, WeightOnly(quantize))
    return model, choice, quantize


@contextmanager
def _without_reports() -> Iterator[None]:
    """Silence transformers' table about a broken checkpoint; `_check_loading` reports it in one line.

    Its progress bar is for terminals: in a log it would be one line with all its states.
    """
    logger = logging.getLogger("transformers")
    before = logger.level
    hides_bar = is_progress_bar_enabled() and not sys.stderr.isatty()
    logger.setLevel(logging.ERROR)
    if hides_bar:
        disable_progress_bar()
    try:
        yield
    finally:
        logger.setLevel(before)
        if hides_bar:
            enable_progress_bar()


def _check_loading(info: dict[str, Any]) -> None:
    if wrong := sorted(info.get("mismatched_keys") or ()):
        name, there, expected = wrong[0]
        raise CheckpointError(f"broken checkpoint: {name} is {list(there)}, and its config says {list(expected)}")
    for kind in ("missing_keys", "error_msgs"):
        if broken := sorted(str(key) for key in info.get(kind) or ()):
            # transformers would continue with random numbers in their place
            raise CheckpointError(f"broken checkpoint: {kind.replace('_', ' ')} {', '.join(broken[:3])}")
