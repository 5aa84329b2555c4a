"""Load a worker's models according to the settings."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from app.settings import Settings
from models.adapter_folders import adapter_folders, check_adapter_folders
from models.checkpoint_files import CheckpointError, check_folder
from models.registry import ModelRegistry, ServedModel

if TYPE_CHECKING:
    from models.adapters import AdapterFiles
    from models.checkpoints import Checkpoint


class LoadError(Exception):
    """A model cannot be served; the message is one line."""


def check_folders(settings: Settings) -> None:
    """Check what can be checked without importing torch, which takes seconds; raises `LoadError`."""
    try:
        check_adapter_folders(settings.adapters)
    except ValueError as error:
        raise LoadError(f"PARLEY_ADAPTERS: {error}") from None
    if settings.engine == "paced":
        return
    draft = settings.draft_model if settings.speculation == "auto" else ""
    try:
        for name in filter(None, (settings.model, settings.second_model, draft)):
            check_folder(name)
    except CheckpointError as error:
        raise LoadError(str(error)) from None


def load_servings(settings: Settings, on_fatal: Callable[[str], None]) -> ModelRegistry:
    """Load the model, its adapters, and the second model if there is one; raises `LoadError`."""
    # These modules import torch, which takes seconds.
    if settings.engine == "paced":
        from models.paced import paced  # noqa: PLC0415

        serving = paced(settings.paced_tokens_per_s)
        return ModelRegistry(dataclasses.replace(serving, names=serving.names | {settings.model}))
    if settings.engine == "vllm":
        return _vllm(settings, on_fatal)
    from models.adapters import AdapterError, AdapterFiles  # noqa: PLC0415
    from models.checkpoints import load_checkpoint  # noqa: PLC0415

    try:
        # All weights are in memory before the first engine reserves the rest for its KV cache.
        load = partial(
            load_checkpoint,
            device=settings.device,
            dtype=settings.dtype,
            quantize=settings.quantize,
            remote_code=settings.trust_remote_code,
        )
        checkpoints = [load(settings.model, context_length=settings.context_length)]
        if settings.second_model:
            second = load(settings.second_model, context_length=settings.context_length, may_be_shorter=True)
            checkpoints.append(second)
        draft = None
        if settings.speculation == "auto" and settings.draft_model:
            draft = load(settings.draft_model)
        adapters = [AdapterFiles.find(*named) for named in adapter_folders(settings.adapters).items()]
        first = _serving(checkpoints[0], settings, on_fatal, adapters, draft, beside=len(checkpoints) - 1)
        tuned = [_adapted(first, files) for files in adapters]
        others = [_serving(checkpoint, settings, on_fatal) for checkpoint in checkpoints[1:]]
        return ModelRegistry(first, *others, *tuned)
    except (AdapterError, CheckpointError, ValueError) as error:
        raise LoadError(str(error)) from None


def _vllm(settings: Settings, on_fatal: Callable[[str], None]) -> ModelRegistry:
    from models.checkpoints import describe_checkpoint  # noqa: PLC0415
    from models.prompts import PromptBuilder  # noqa: PLC0415
    from models.vllm import VllmOptions, create_vllm_engine  # noqa: PLC0415

    for name in ("second_model", "adapters", "draft_model", "quantize"):
        if getattr(settings, name):
            raise LoadError(f"PARLEY_{name.upper()} does not apply to PARLEY_ENGINE=vllm; leave it empty")
    options = VllmOptions(
        max_running=settings.max_running,
        dtype=settings.dtype,
        kv_cache_gb=settings.kv_cache_gb,
        tensor_parallel=settings.tensor_parallel,
        pipeline_parallel=settings.pipeline_parallel,
        data_parallel=settings.data_parallel,
        backend=settings.vllm_backend,
        more=json.loads(settings.vllm_args or "{}"),
    )
    try:
        folder, checkpoint = describe_checkpoint(settings.model, context_length=settings.context_length)
        engine = create_vllm_engine(str(folder), checkpoint, options, on_fatal)
    except CheckpointError as error:
        raise LoadError(str(error)) from None
    return ModelRegistry(
        ServedModel(
            engine,
            PromptBuilder(checkpoint, settings.history_turns, settings.tool_format),
            checkpoint.defaults,
            frozenset({checkpoint.name, engine.model_version}),
            lambda token: checkpoint.tokenizer.decode([token]),
        )
    )


def _adapted(base: ServedModel, files: AdapterFiles) -> ServedModel:
    names = frozenset({files.name})
    return dataclasses.replace(base, names=names, adapter=files.name, adapter_version=files.version)


def _serving(
    checkpoint: Checkpoint,
    settings: Settings,
    on_fatal: Callable[[str], None],
    adapters: Sequence[AdapterFiles] = (),
    draft: Checkpoint | None = None,
    *,
    beside: int = 0,
) -> ServedModel:
    """`beside`: how many more engines need a KV cache on the same GPU."""
    from models.engine import EngineOptions, SpeculationMode, TorchEngine  # noqa: PLC0415
    from models.engine.compute.cache import SHARE_OF_FREE_GPU  # noqa: PLC0415
    from models.prompts import PromptBuilder  # noqa: PLC0415

    options = EngineOptions(
        max_running=settings.max_running,
        threads=settings.threads,
        kv_cache_gb=settings.kv_cache_gb,
        adapters_gb=settings.adapters_gb,
        speculation=SpeculationMode(settings.speculation),
        draft=draft,
        gpu_share=SHARE_OF_FREE_GPU / (1 + beside),
    )
    return ServedModel(
        TorchEngine(checkpoint, options, on_fatal, adapters),
        PromptBuilder(checkpoint, settings.history_turns, settings.tool_format),
        checkpoint.defaults,
        frozenset({checkpoint.name, checkpoint.model_version}),
        lambda token: checkpoint.tokenizer.decode([token]),
    )
