"""Load a model: by the name `demo`, a folder, or a Hugging Face name; safetensors only, no code from the checkpoint.

A checkpoint that cannot be served correctly is rejected with one line, because otherwise the worker would answer
nonsense until someone notices. `model_version` identifies the weights; resumed answers compare it.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from models.architectures import context_limit, why_unsupported
from models.block_import import unimported
from models.checkpoint_files import CheckpointError, CheckpointFiles, first_line
from models.cpu_dtype import faster_dtype
from models.generation import GenerationDefaults

# A third of a worker's start time, for two functions of transformers that are not used here.
with unimported("sklearn"), unimported("scipy"):
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig
    from transformers.utils.logging import disable_progress_bar, enable_progress_bar, is_progress_bar_enabled

FLOAT32_AT_MOST = 4 << 30  # bytes of weights that may still be converted to float32 on a CPU

__all__ = ["Checkpoint", "CheckpointError", "load_checkpoint"]

# What the libraries raise for a missing or broken checkpoint; nothing else is caught.
LOAD_ERRORS = (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError, ImportError, SafetensorError)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model in memory with its tokenizer and limits."""

    name: str
    model: Any
    tokenizer: Any
    defaults: GenerationDefaults
    eos: frozenset[int]
    model_version: str
    context_length: int


def load_checkpoint(
    name: str,
    *,
    device: str = "auto",
    dtype: str = "auto",
    context_length: int = 0,
    may_be_shorter: bool = False,
    quantize: str = "",
    remote_code: bool = False,
) -> Checkpoint:
    """Load `name`, a GPTQ checkpoint or a plain one, whose weights can be quantized (`int8`, `fp8`) while loading.

    A model whose own context is shorter than `context_length` is rejected unless it `may_be_shorter`.
    Raises `CheckpointError` with one line.
    """
    files = CheckpointFiles.find(name, remote_code=remote_code)
    try:
        config = AutoConfig.from_pretrained(files.folder, trust_remote_code=remote_code)
    except LOAD_ERRORS as error:
        raise CheckpointError(f"model {name}: its config cannot be read: {first_line(error)}") from error
    if reason := why_unsupported(config):
        raise CheckpointError(f"model {name}: {reason}")
    place = _device(device)
    try:
        with _without_reports():
            model, quantization = _load_model(files, config, place, dtype, quantize, remote_code)
        tokenizer = AutoTokenizer.from_pretrained(files.folder, trust_remote_code=remote_code)
    except CheckpointError as error:
        raise CheckpointError(f"model {name}: {error}") from None
    except LOAD_ERRORS as error:
        raise CheckpointError(f"model {name}: cannot be loaded: {first_line(error)}") from error
    if not getattr(tokenizer, "is_fast", False):
        raise CheckpointError(f"model {name}: it has no tokenizer.json; convert its tokenizer first")
    generation = _generation(files.folder)
    return Checkpoint(
        name=name,
        model=model.eval().requires_grad_(requires_grad=False),
        tokenizer=tokenizer,
        defaults=_defaults(generation),
        eos=_eos(generation, config, tokenizer),
        model_version="+".join(filter(None, (files.version, quantization))),
        context_length=_context(name, config, context_length, may_be_shorter=may_be_shorter),
    )


def _load_model(
    files: CheckpointFiles, config: Any, place: torch.device, dtype: str, quantize: str, remote_code: bool
) -> tuple[Any, str]:
    """The model on its device, and the name of its quantization."""
    is_quantized = getattr(config, "quantization_config", None) or (files.folder / "quantize_config.json").is_file()
    if not is_quantized and not quantize:
        model, info = AutoModelForCausalLM.from_pretrained(
            files.folder,
            dtype=_dtype(dtype, place, files, config),
            use_safetensors=True,
            trust_remote_code=remote_code,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # _check_loading reports it in one line
        )
        _check_loading(info)
        return model.to(place), ""
    from models.quantization import WeightOnly, gptq_config, load_gptq, quantize_weights  # noqa: PLC0415  only here

    kind = (
        torch.bfloat16 if dtype == "auto" else getattr(torch, dtype)
    )  # the dtype in which the packed kernels are fast
    if gptq := gptq_config(files.folder, config):
        if quantize:
            raise CheckpointError(f"it is quantized already, and cannot be quantized to {quantize}")
        model, info, quantization = load_gptq(files.folder, config, gptq, kind, place, remote_code=remote_code)
        _check_loading(info)
        return model, quantization
    model, info = AutoModelForCausalLM.from_pretrained(
        files.folder,
        dtype=kind,
        use_safetensors=True,
        trust_remote_code=remote_code,
        output_loading_info=True,
        ignore_mismatched_sizes=True,
    )
    _check_loading(info)
    model = model.to(place)
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


def _device(device: str) -> torch.device:
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        place = torch.device(device)
        torch.empty(0, device=place)
    except (RuntimeError, AssertionError) as error:
        raise CheckpointError(f"device {device} cannot be used: {first_line(error)}") from error
    return place


def _dtype(dtype: str, device: torch.device, files: CheckpointFiles, config: Any) -> torch.dtype:
    if dtype != "auto":
        return getattr(torch, dtype)
    if device.type != "cpu" or files.weight_bytes > FLOAT32_AT_MOST:
        return torch.bfloat16
    return faster_dtype(config, files.weight_bytes) if config.dtype is torch.bfloat16 else torch.float32


def _generation(folder: Path) -> Any:
    if not (folder / "generation_config.json").is_file():
        return GenerationConfig()
    return GenerationConfig.from_pretrained(folder)


def _defaults(generation: Any) -> GenerationDefaults:
    if generation.do_sample is False:
        return GenerationDefaults(temperature=0.0)

    def pick(name: str, fallback: float) -> float:
        value = getattr(generation, name, None)
        return fallback if value is None else value

    return GenerationDefaults(pick("temperature", 1.0), pick("top_p", 1.0), int(pick("top_k", 0)))


def _eos(generation: Any, config: Any, tokenizer: Any) -> frozenset[int]:
    found: set[int] = set()
    for value in (generation.eos_token_id, getattr(config, "eos_token_id", None), tokenizer.eos_token_id):
        found.update(value if isinstance(value, list) else [] if value is None else [value])
    return frozenset(found)


def _context(name: str, config: Any, wanted: int, *, may_be_shorter: bool = False) -> int:
    limit = context_limit(config)
    if may_be_shorter:
        wanted = min(wanted, limit)
    if wanted > limit:
        raise CheckpointError(f"model {name}: context_length={wanted}, but the model has {limit}")
    return wanted or limit


def describe_checkpoint(name: str, *, context_length: int = 0) -> tuple[Path, Checkpoint]:
    """The checkpoint without its weights (`model` is None), for an engine that loads those itself.

    Raises `CheckpointError` with one line.
    """
    files = CheckpointFiles.find(name)
    try:
        config = AutoConfig.from_pretrained(files.folder, trust_remote_code=False)
        tokenizer = AutoTokenizer.from_pretrained(files.folder, trust_remote_code=False)
    except LOAD_ERRORS as error:
        raise CheckpointError(f"model {name}: cannot be read: {first_line(error)}") from error
    generation = _generation(files.folder)
    return files.folder, Checkpoint(
        name=name,
        model=None,
        tokenizer=tokenizer,
        defaults=_defaults(generation),
        eos=_eos(generation, config, tokenizer),
        model_version=files.version,
        context_length=_context(name, config, context_length),
    )
