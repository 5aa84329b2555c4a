"""The models of a worker, loaded as the settings say."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from app.settings import Settings
from models.adapter_folders import adapter_folders, check_adapter_folders
from models.checkpoint_files import CheckpointError, check_folder
from models.serving import Serving, Servings

if TYPE_CHECKING:
    from models.adapters import AdapterFiles
    from models.checkpoints import Checkpoint


class LoadError(Exception):
    """A model cannot be served; one line for people."""


def check_folders(settings: Settings) -> None:
    """What can be told without the seconds that torch takes to import; raises `LoadError`."""
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


def load_servings(settings: Settings, on_fatal: Callable[[str], None]) -> Servings:
    """The model of the settings, its adapters, and the second model where there is one; raises `LoadError`."""
    # What is imported here imports torch, which takes seconds.
    if settings.engine == "paced":
        from models.paced import paced  # noqa: PLC0415

        serving = paced(settings.paced_tokens_per_s)
        return Servings(dataclasses.replace(serving, names=serving.names | {settings.model}))
    if settings.engine == "vllm":
        return _vllm(settings, on_fatal)
    from models.adapters import AdapterError, AdapterFiles  # noqa: PLC0415
    from models.checkpoints import load_checkpoint  # noqa: PLC0415

    try:
        # All weights are in memory before the first engine takes what is left for its cache.
        checkpoints = [
            load_checkpoint(
                settings.model,
                device=settings.device,
                dtype=settings.dtype,
                context_length=settings.context_length,
                quantize=settings.quantize,
                remote_code=settings.trust_remote_code,
            )
        ]
        if settings.second_model:
            checkpoints.append(load_checkpoint(settings.second_model, device=settings.device, dtype=settings.dtype))
        draft = None
        if settings.speculation == "auto" and settings.draft_model:
            draft = load_checkpoint(settings.draft_model, device=settings.device, dtype=settings.dtype)
        adapters = [AdapterFiles.find(*named) for named in adapter_folders(settings.adapters).items()]
        first = _serving(checkpoints[0], settings, on_fatal, adapters, draft, beside=len(checkpoints) - 1)
        tuned = [_adapted(first, files) for files in adapters]
        others = [_serving(checkpoint, settings, on_fatal) for checkpoint in checkpoints[1:]]
        return Servings(first, *others, *tuned)
    except (AdapterError, CheckpointError, ValueError) as error:
        raise LoadError(str(error)) from None


def _vllm(settings: Settings, on_fatal: Callable[[str], None]) -> Servings:
    from models.checkpoints import describe_checkpoint  # noqa: PLC0415
    from models.prompts import PromptBuilder  # noqa: PLC0415
    from models.vllm import VllmOptions, create_vllm_engine  # noqa: PLC0415

    for name in ("second_model", "adapters", "draft_model", "quantize"):
        if getattr(settings, name):
            raise LoadError(f"PARLEY_{name.upper()} is not for PARLEY_ENGINE=vllm; leave it empty")
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
    return Servings(
        Serving(
            engine,
            PromptBuilder(checkpoint, settings.history_turns),
            checkpoint.defaults,
            frozenset({checkpoint.name, engine.model_version}),
            lambda token: checkpoint.tokenizer.decode([token]),
        )
    )


def _adapted(base: Serving, files: AdapterFiles) -> Serving:
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
) -> Serving:
    """`beside`: how many engines are still to come that need as much of a GPU's memory."""
    from models.engine import EngineOptions, SpeculationMode, TorchEngine  # noqa: PLC0415
    from models.engine.cache import SHARE_OF_FREE_GPU  # noqa: PLC0415
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
    return Serving(
        TorchEngine(checkpoint, options, on_fatal, adapters),
        PromptBuilder(checkpoint, settings.history_turns),
        checkpoint.defaults,
        frozenset({checkpoint.name, checkpoint.model_version}),
        lambda token: checkpoint.tokenizer.decode([token]),
    )
