"""Load a model: by the name `demo`, a folder, a GGUF file, or a Hugging Face name; no code from the checkpoint.

A checkpoint that cannot be served correctly is rejected with one line, because otherwise the worker would answer
nonsense until someone notices. `model_version` identifies the weights and what computes with them; resumed answers
compare it.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers.generation.configuration_utils import GenerationConfig

from models.checkpoints.arithmetic import (
    Wanted,
    arithmetic,
    is_served_as_it_is,
    stored_dtype,
    version_of,
    without_what_is_slower,
)
from models.files.architectures import context_limit, why_unsupported
from models.files.checkpoint import CheckpointFiles
from models.files.errors import CheckpointError, first_line
from models.files.tokenizer import load_tokenizer
from models.interface.generation import GenerationDefaults
from models.llama import load_llama, read_config
from models.machine.freed_memory import large_blocks_returned
from models.weights import PLAIN, Products, replace_layers
from models.weights.choice import FormChoice
from models.weights.embedding import leave_embedding_in_file
from models.weights.threads import computing_threads, few_threads

__all__ = ["Checkpoint", "CheckpointError", "load_checkpoint"]


_RANGES = {
    "temperature": (0, 1000),
    "top_p": (0, 1),
    "top_k": (-1, 2**31),
    "min_p": (0, 1),
    "repetition_penalty": (0.01, 1000),  # logits are divided by it
}
# Keys of generation_config.json that are not implemented, with the values that change nothing.
_UNSUPPORTED_GENERATION: dict[str, tuple[Any, ...]] = {
    "bad_words_ids": ([],),
    "begin_suppress_tokens": ([],),
    "encoder_repetition_penalty": (1.0,),
    "epsilon_cutoff": (0.0,),
    "eta_cutoff": (0.0,),
    "exponential_decay_length_penalty": (),
    "forced_bos_token_id": (),
    "forced_eos_token_id": (),
    "guidance_scale": (1.0,),
    "max_new_tokens": (256,),  # the default of PARLEY_MAX_TOKENS, which applies in its place
    "min_length": (0,),
    "min_new_tokens": (0,),
    "no_repeat_ngram_size": (0,),
    "num_beams": (1,),
    "penalty_alpha": (0.0,),
    "sequence_bias": ({}, []),
    "stop_strings": ([], ""),
    "suppress_tokens": ([],),
    "top_h": (),
    "typical_p": (1.0,),
}


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model in memory with its tokenizer and limits.

    ignored: Keys of its generation config that change answers elsewhere, and not here.
    files: None for a model that was made in memory.
    threads: With which the engine is fastest; 0 if they were not measured.
    """

    name: str
    model: Any
    tokenizer: Any
    defaults: GenerationDefaults
    eos: frozenset[int]
    model_version: str
    context_length: int
    quantization: str = ""
    ignored: Mapping[str, Any] = field(default_factory=dict)
    config: Any = None
    files: CheckpointFiles | None = None
    products: Products = PLAIN
    threads: int = 0


@dataclass(frozen=True, slots=True)
class _Loaded:
    config: Any
    model: Any
    choice: FormChoice
    quantization: str = ""


def load_checkpoint(
    name: str,
    *,
    device: str = "auto",
    dtype: str = "auto",
    context_length: int = 0,
    may_be_shorter: bool = False,
    quantize: str = "",
    products: str = "auto",
    threads: int = 0,
    remote_code: bool = False,
    by_transformers: bool = True,
) -> Checkpoint:
    """Load `name`, a GPTQ checkpoint or a plain one, whose weights can be quantized (`int8`, `int8-vocabulary`, `fp8`)
    while loading. `products` are `auto`, `plain`, `packed` or `stored`; `threads` those that will compute, 0: not said.

    A model whose own context is shorter than `context_length` is rejected unless it `may_be_shorter`. Unless
    `by_transformers`, a plain checkpoint that is built like Llama, or a Gemma 3, becomes a `LlamaDecoder`. It loads two
    seconds faster and has the same logits, but only the engine can generate text with it.
    Raises `CheckpointError` with one line.
    """
    files = CheckpointFiles.find(name, remote_code=remote_code)
    target = _device(device)
    wanted = without_what_is_slower(Wanted(dtype, quantize, products, threads), target)
    with large_blocks_returned():
        with ThreadPoolExecutor(1, "load") as alone:
            loaded = alone.submit(_load, name, files, target, wanted, remote_code, by_transformers).result()
        tokenizer = _tokenizer(name, files.folder, remote_code=remote_code)
    config, model = loaded.config, loaded.model
    generation = _generation(name, files.folder)
    return Checkpoint(
        name=name,
        model=model.eval().requires_grad_(requires_grad=False),
        tokenizer=tokenizer,
        defaults=_defaults(generation),
        eos=_eos(generation, config, tokenizer),
        model_version="+".join(filter(None, (files.version, _arithmetic_version(loaded, target)))),
        context_length=_context(name, config, context_length, may_be_shorter=may_be_shorter),
        quantization=loaded.quantization,
        ignored=_ignored(generation),
        config=config,
        files=files,
        products=loaded.choice.products,
        threads=loaded.choice.threads,
    )


def _load(
    name: str, files: CheckpointFiles, target: torch.device, wanted: Wanted, remote_code: bool, by_transformers: bool
) -> _Loaded:
    """In a thread of its own, with which those end that OpenMP made for it. Where a process has more than cores, OpenMP
    lets them sleep at each product instead of waiting awake, and two threads of an engine are no faster than one.
    """
    with computing_threads(few_threads()):
        own = None if by_transformers or remote_code else _own_decoder(name, files, target, wanted)
        return own or _by_transformers(name, files, target, wanted, remote_code)


def _arithmetic_version(loaded: _Loaded, target: torch.device) -> str:
    from models.compute.fused import cache_dtype, computed_by_kernels

    dtype = loaded.choice.dtype
    return version_of(
        loaded.choice, target, loaded.quantization, by_kernels=computed_by_kernels(loaded.model, dtype),
        has_narrow_cache=dtype is torch.float32 and cache_dtype(loaded.model) is torch.bfloat16,
    )  # fmt: skip


def _own_decoder(name: str, files: CheckpointFiles, target: torch.device, wanted: Wanted) -> _Loaded | None:
    """What `_by_transformers` returns, if models/llama knows its kind and nothing is wrong with it."""
    config = read_config(files.folder)
    if config is None or (files.folder / "quantize_config.json").is_file() or not is_served_as_it_is(wanted, target):
        return None
    try:
        choice = arithmetic(wanted, target, config, files.weight_bytes)
        model = load_llama(files.folder, config, stored_dtype(choice, config), target)
        if model is not None:
            replace_layers(model, choice.products, choice.dtype)
            leave_embedding_in_file(model, files.folder)
    except Exception as error:  # of libraries, which have many for a broken file
        raise CheckpointError(f"model {name}: cannot be loaded: {first_line(error)}") from error
    return None if model is None else _Loaded(config, model, choice)


def _by_transformers(
    name: str, files: CheckpointFiles, target: torch.device, wanted: Wanted, remote_code: bool
) -> _Loaded:
    from models.checkpoints.transformers_models import load_model

    config = _read_config(name, files.folder, remote_code=remote_code)
    if reason := why_unsupported(config):
        raise CheckpointError(f"model {name}: {reason}")
    try:
        model, choice, quantization = load_model(files, config, target, wanted, remote_code=remote_code)
        replace_layers(model, choice.products, choice.dtype)
        leave_embedding_in_file(model, files.folder)
    except CheckpointError as error:
        raise CheckpointError(f"model {name}: {error}") from None
    except Exception as error:  # of libraries, which have many for a broken file
        raise CheckpointError(f"model {name}: cannot be loaded: {first_line(error)}") from error
    return _Loaded(config, model, choice, quantization)


def _read_config(name: str, folder: Path, *, remote_code: bool) -> Any:
    from models.checkpoints.transformers_models import load_config

    try:
        return load_config(folder, remote_code=remote_code)
    except Exception as error:
        raise CheckpointError(
            f"model {name}: its config cannot be read: {first_line(error)}; fetch config.json again"
        ) from error


def _device(device: str) -> torch.device:
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        target = torch.device(device)
        torch.empty(0, device=target)
    except (RuntimeError, AssertionError) as error:
        raise CheckpointError(f"device {device} cannot be used: {first_line(error)}") from error
    return target


def _tokenizer(name: str, folder: Path, *, remote_code: bool) -> Any:
    try:
        tokenizer = load_tokenizer(folder, remote_code=remote_code)
    except Exception as error:  # a broken tokenizer.json raises a bare Exception
        raise CheckpointError(
            f"model {name}: its tokenizer cannot be read: {first_line(error)}; fetch tokenizer.json and "
            "tokenizer_config.json again"
        ) from error
    if not getattr(tokenizer, "is_fast", False):
        raise CheckpointError(f"model {name}: it has no tokenizer.json; convert its tokenizer first")
    return tokenizer


def _generation(name: str, folder: Path) -> Any:
    if not (folder / "generation_config.json").is_file():
        return GenerationConfig()
    try:
        generation = GenerationConfig.from_pretrained(folder)
    except Exception as error:  # of libraries, which have many for a broken file
        raise CheckpointError(
            f"model {name}: generation_config.json cannot be read: {first_line(error)}; fetch it again"
        ) from error
    for key, (least, most) in _RANGES.items():
        value = getattr(generation, key, None)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise CheckpointError(f"model {name}: generation_config.json: {key}={value!r} is not a number; correct it")
        if value is not None and not least <= value <= most:
            message = f"{key}={value!r} is not between {least:g} and {most:g}; correct it"
            raise CheckpointError(f"model {name}: generation_config.json: {message}")
    ends = generation.eos_token_id
    for end in ends if isinstance(ends, list) else [] if ends is None else [ends]:
        if isinstance(end, bool) or not isinstance(end, int):
            message = f"eos_token_id={ends!r} is neither an id nor a list of them; correct it"
            raise CheckpointError(f"model {name}: generation_config.json: {message}")
    return generation


def _defaults(generation: Any) -> GenerationDefaults:
    """What of the generation config changes an answer. Greedy generation keeps the penalty, as in transformers."""

    def pick(name: str, fallback: float) -> float:
        value = getattr(generation, name, None)
        return fallback if value is None else value

    penalty = pick("repetition_penalty", 1.0)
    if generation.do_sample is False:
        return GenerationDefaults(temperature=0.0, repetition_penalty=penalty)
    return GenerationDefaults(
        pick("temperature", 1.0), pick("top_p", 1.0), int(pick("top_k", 0)), pick("min_p", 0.0), penalty
    )


def _ignored(generation: Any) -> dict[str, Any]:
    set_keys = ((key, getattr(generation, key, None), neutral) for key, neutral in _UNSUPPORTED_GENERATION.items())
    return {key: value for key, value, neutral in set_keys if value is not None and value not in neutral}


def _eos(generation: Any, config: Any, tokenizer: Any) -> frozenset[int]:
    ids: set[int] = set()
    for value in (generation.eos_token_id, getattr(config, "eos_token_id", None), tokenizer.eos_token_id):
        ids.update(value if isinstance(value, list) else [] if value is None else [value])
    return frozenset(ids)


def _context(name: str, config: Any, wanted: int, *, may_be_shorter: bool = False) -> int:
    limit = context_limit(config)
    if may_be_shorter:
        wanted = min(wanted, limit)
    if wanted > limit:
        raise CheckpointError(f"model {name}: context_length={wanted}, but the model has {limit}")
    return wanted or limit


def describe_checkpoint(name: str, *, context_length: int = 0, remote_code: bool = False) -> tuple[Path, Checkpoint]:
    """The checkpoint without its weights (`model` is None), for an engine that loads those itself.

    Raises `CheckpointError` with one line.
    """
    files = CheckpointFiles.find(name, remote_code=remote_code)
    config = _read_config(name, files.folder, remote_code=remote_code)
    tokenizer = _tokenizer(name, files.folder, remote_code=remote_code)
    generation = _generation(name, files.folder)
    return files.folder, Checkpoint(
        name=name,
        model=None,
        tokenizer=tokenizer,
        defaults=_defaults(generation),
        eos=_eos(generation, config, tokenizer),
        model_version=files.version,
        context_length=_context(name, config, context_length),
        ignored=_ignored(generation),
        config=config,
        files=files,
    )
