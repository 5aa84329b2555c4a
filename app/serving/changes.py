"""Models that join and leave a worker while it runs, as the policy file changes.

    file changes -> load the new models in a thread -> start their engines -> the rest of the policy is loaded
        -> in one step with it, serve the new list; models that are not in it: finish their answers, then stop
        -> or, if any part cannot be loaded: stop the new engines; nothing has changed

A model that both versions have stays loaded.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.policy.file import Policy, PolicyError
from app.serving.loading import LoadedModels, LoadError, ModelLoader
from app.serving.model_check import log_reports
from models.interface.generation import Engine
from models.served.registry import ModelRegistry

log = logging.getLogger(__name__)

_CHECK_S = 1.0
_IDLE_CHECKS = 3
"""An engine stops after so many checks in a row without work: a request may be on its way to it."""


class ModelChanges:
    """`stopped` is called with each engine that has left."""

    def __init__(self, loader: ModelLoader, models: ModelRegistry, stopped: Callable[[Engine], None]) -> None:
        self._loader = loader
        self._models = models
        self._stopped = stopped
        self._leaving: dict[Engine, asyncio.Task[None]] = {}

    @property
    def leaving(self) -> list[Engine]:
        """Engines that finish their last answers."""
        return list(self._leaving)

    async def prepare(self, policy: Policy) -> ModelChange | None:
        """Load and start the models that this policy adds; None if it changes no model. Raises `PolicyError`, and keeps
        none of them then.
        """
        started: list[Engine] = []
        try:
            loaded = await asyncio.to_thread(self._loader.prepare, policy)
            if [*loaded.models] == [*self._models]:
                return None
            before = {*self._models.engines}
            for engine in ModelRegistry(*loaded.models).engines:
                if engine not in before:
                    started.append(engine)
                    await engine.start()
        except BaseException as error:
            await _stop(started)
            if isinstance(error, LoadError | ValueError):
                raise PolicyError(f"policy: {error}") from None
            if not isinstance(error, Exception):
                raise
            log.exception("a model cannot be loaded")  # memory that is full, for example
            raise PolicyError(f"policy: a model cannot be loaded: {error!r}") from error
        return ModelChange(self, loaded, tuple(started))

    def serve(self, loaded: LoadedModels) -> None:
        """Serve these models from now on, and let the others finish."""
        before = self._models.engines
        self._loader.keep(loaded)
        self._models.replace(*loaded.models)
        log.warning("models served now: %s", ", ".join(self._models.names))
        log_reports([model for model in loaded.models if model.engine not in before])
        engines = {*self._models.engines}
        for engine in before:
            if engine not in engines:
                self._leaving[engine] = asyncio.create_task(self._retire(engine), name="leaving-model")

    async def stop(self) -> None:
        for task in self._leaving.values():
            task.cancel()
        await asyncio.gather(*self._leaving.values(), return_exceptions=True)
        for engine in self.leaving:
            await engine.stop()

    async def _retire(self, engine: Engine) -> None:
        idle = 0
        while idle < _IDLE_CHECKS:
            await asyncio.sleep(_CHECK_S)
            stats = engine.stats
            idle = 0 if stats.running or stats.waiting else idle + 1
        self._models.forget(engine)
        await engine.stop()
        del self._leaving[engine]
        self._stopped(engine)
        log.warning("model %s has left", engine.model_version)


@dataclass(frozen=True, slots=True)
class ModelChange:
    """Models that are loaded; the engines that were `started` for them have no work yet."""

    changes: ModelChanges
    loaded: LoadedModels
    started: tuple[Engine, ...]

    def apply(self) -> None:
        self.changes.serve(self.loaded)

    async def drop(self) -> None:
        await _stop(self.started)


async def _stop(engines: Sequence[Engine]) -> None:
    for engine in engines:
        try:
            await engine.stop()
        except Exception:
            log.exception("the engine of %s cannot be stopped", engine.model_version)
