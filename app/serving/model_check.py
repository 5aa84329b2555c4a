"""What a worker would make of a model: loaded and checked as a worker does, and reported instead of served."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from app.serving.engine_choice import with_chosen_engine
from app.serving.loading import LoadError, check_folders, load_models
from app.settings import Settings
from models.files.errors import CheckpointError, first_line
from models.served.model_report import ModelReport
from models.served.registry import ServedModel

if TYPE_CHECKING:
    from models.checkpoints.loading import Checkpoint
    from models.engine import TorchEngine
    from models.prompts.builder import PromptBuilder

log = logging.getLogger(__name__)


def log_reports(models: Iterable[ServedModel]) -> None:
    """What is loaded, before the first request."""
    for report in filter(None, (model.report for model in models)):
        log.info("model %s: %s", report.model_version, report.summary)
        log.debug("model %s: %s", report.model_version, "; ".join(f"{name}: {text}" for name, text in report.table[1:]))
        for warning in report.warnings:
            log.warning("model %s: %s", report.model_version, warning)


def check_model(settings: Settings) -> ModelReport:
    """The report of the settings' model and its adapters; takes as long as a worker's start.

    Raises `LoadError` with one line if it cannot be served right.
    """
    check_folders(settings)
    settings = with_chosen_engine(settings)
    if settings.engine == "vllm":
        return _described(settings)
    try:
        return _loaded(settings)
    except LoadError:
        raise
    except CheckpointError as error:
        raise LoadError(f"model {settings.model}: {error}") from None
    except Exception as error:
        raise LoadError(f"model {settings.model}: it cannot be loaded: {first_line(error)}") from error


def _loaded(settings: Settings) -> ModelReport:
    from models.engine import TorchEngine

    model = load_models(settings, lambda _: None).default
    report, engine = model.report, model.engine
    assert isinstance(engine, TorchEngine)
    assert report is not None
    faults = engine.adapter_faults()
    asyncio.run(_start(engine))
    return dataclasses.replace(report, warnings=(*report.warnings, *faults))


async def _start(engine: TorchEngine) -> None:
    """The start compares the engine's logits with the model's own."""
    try:
        await engine.start()
    finally:
        await engine.stop()


def _described(settings: Settings) -> ModelReport:
    from models.served.checkpoint_report import report_under_vllm

    checkpoint, prompts = described_prompts(settings)
    try:
        return report_under_vllm(checkpoint, prompts, settings.dtype)
    except CheckpointError as error:
        raise LoadError(str(error)) from None


def described_prompts(settings: Settings) -> tuple[Checkpoint, PromptBuilder]:
    """The settings' model without its weights, and what renders its prompts; raises `LoadError`."""
    from models.checkpoints.loading import describe_checkpoint
    from models.prompts.builder import PromptBuilder
    from models.served.checkpoint_report import must_render

    check_folders(settings)
    try:
        _, checkpoint = describe_checkpoint(
            settings.model, context_length=settings.context_length, remote_code=settings.trust_remote_code
        )
        prompts = PromptBuilder(checkpoint, settings.conversation_turns, settings.tool_format)
        must_render(checkpoint, prompts)
    except CheckpointError as error:
        raise LoadError(str(error)) from None
    except Exception as error:
        raise LoadError(f"model {settings.model}: it cannot be read: {first_line(error)}") from error
    return checkpoint, prompts
