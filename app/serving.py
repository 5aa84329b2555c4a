"""The models of a worker, loaded as the settings say."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from app.settings import Settings
from models.adapter_folders import adapter_folders
from models.serving import Serving, Servings

if TYPE_CHECKING:
    from models.adapters import AdapterFiles
    from models.checkpoints import Checkpoint


class LoadError(Exception):
    """A model cannot be served; one line for people."""


def load_servings(settings: Settings, on_fatal: Callable[[str], None]) -> Servings:
    """The model of the settings, its adapters, and the second model where there is one; raises `LoadError`."""
    # What is imported here imports torch, which takes seconds.
    if settings.engine == "paced":
        from models.paced import paced  # noqa: PLC0415

        serving = paced(settings.paced_tokens_per_s)
        return Servings(dataclasses.replace(serving, names=serving.names | {settings.model}))
    from models.adapters import AdapterError, AdapterFiles  # noqa: PLC0415
    from models.checkpoints import CheckpointError, load_checkpoint  # noqa: PLC0415

    try:
        # All weights are in memory before the first engine takes what is left for its cache.
        checkpoints = [
            load_checkpoint(
                settings.model, device=settings.device, dtype=settings.dtype, context_length=settings.context_length
            )
        ]
        if settings.second_model:
            checkpoints.append(load_checkpoint(settings.second_model, device=settings.device, dtype=settings.dtype))
        adapters = [AdapterFiles.find(*named) for named in adapter_folders(settings.adapters).items()]
        first = _serving(checkpoints[0], settings, on_fatal, adapters)
        tuned = [_adapted(first, files) for files in adapters]
        others = [_serving(checkpoint, settings, on_fatal) for checkpoint in checkpoints[1:]]
        return Servings(first, *others, *tuned)
    except (AdapterError, CheckpointError, ValueError) as error:
        raise LoadError(str(error)) from None


def _adapted(base: Serving, files: AdapterFiles) -> Serving:
    names = frozenset({files.name})
    return dataclasses.replace(base, names=names, adapter=files.name, adapter_version=files.version)


def _serving(
    checkpoint: Checkpoint,
    settings: Settings,
    on_fatal: Callable[[str], None],
    adapters: Sequence[AdapterFiles] = (),
) -> Serving:
    from models.engine import EngineOptions, TorchEngine  # noqa: PLC0415
    from models.prompts import PromptBuilder  # noqa: PLC0415

    options = EngineOptions(
        max_running=settings.max_running,
        threads=settings.threads,
        kv_cache_gb=settings.kv_cache_gb,
        adapters_gb=settings.adapters_gb,
    )
    return Serving(
        TorchEngine(checkpoint, options, on_fatal, adapters),
        PromptBuilder(checkpoint, settings.history_turns),
        checkpoint.defaults,
        frozenset({checkpoint.name, checkpoint.model_version}),
        lambda token: checkpoint.tokenizer.decode([token]),
    )
