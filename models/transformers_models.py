"""Models of every kind that transformers knows. Importing its model classes takes seconds."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from models.block_import import unimported
from models.checkpoint_files import CheckpointError

# A second, for two functions of transformers that are not used here.
with unimported("sklearn"), unimported("scipy"):
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.utils.logging import disable_progress_bar, enable_progress_bar, is_progress_bar_enabled


def load_config(folder: Path, *, remote_code: bool = False) -> Any:
    return AutoConfig.from_pretrained(folder, trust_remote_code=remote_code)


def load_model(
    folder: Path,
    config: Any,
    device: torch.device,
    dtype: str,
    plain_dtype: Callable[[], torch.dtype],
    quantize: str,
    *,
    remote_code: bool,
) -> tuple[Any, str]:
    """The model on its device, and the name of its quantization. `plain_dtype` is of weights that are not quantized;
    `dtype` is the setting, for those that are.
    """
    with _without_reports():
        is_quantized = getattr(config, "quantization_config", None) or (folder / "quantize_config.json").is_file()
        if not is_quantized and not quantize:
            return _plain(folder, plain_dtype(), remote_code).to(device), ""
        return _quantized(folder, config, device, dtype, quantize, remote_code)


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
    folder: Path, config: Any, device: torch.device, dtype: str, quantize: str, remote_code: bool
) -> tuple[Any, str]:
    from models.quantization import WeightOnly, gptq_config, load_gptq, quantize_weights  # only here

    # the dtype in which the packed kernels are fast
    kind = torch.bfloat16 if dtype == "auto" else getattr(torch, dtype)
    if gptq := gptq_config(folder, config):
        if quantize:
            raise CheckpointError(f"it is quantized already, and cannot be quantized to {quantize}")
        model, info, quantization = load_gptq(folder, config, gptq, kind, device, remote_code=remote_code)
        _check_loading(info)
        return model, quantization
    model = _plain(folder, kind, remote_code).to(device)
    quantize_weights(model, WeightOnly(quantize))
    return model, quantize


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
