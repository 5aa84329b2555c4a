"""Models that join and leave a worker while it runs, as the policy file changes.

    file changes -> load the new models in a thread -> start their engines -> serve the new list
                                                       models that are not in it: finish their answers, then stop

Until the new models are ready, the former policy is in force. If one of them cannot be loaded, it stays in force.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from app.policy.file import Policy, PolicyError
from app.serving.loading import LoadError, ModelLoader
from models.generation import Engine
from models.registry import ModelRegistry

log = logging.getLogger(__name__)

_CHECK_S = 1.0
_IDLE_CHECKS = 3
"""An engine stops after so many checks in a row without work: a request may be on its way to it."""


class ModelChanges:
    """`stopped` is called with each engine that has left."""

    def __init__(self, loader: ModelLoader, servings: ModelRegistry, stopped: Callable[[Engine], None]) -> None:
        self._loader = loader
        self._servings = servings
        self._stopped = stopped
        self._leaving: dict[Engine, asyncio.Task[None]] = {}

    @property
    def leaving(self) -> list[Engine]:
        """Engines that finish their last answers."""
        return list(self._leaving)

    async def use(self, policy: Policy) -> None:
        """Serve the models of this policy; raises `PolicyError` and changes nothing then."""
        before = self._servings.engines
        try:
            servings = await asyncio.to_thread(self._loader.load, policy)
            engines = {*ModelRegistry(*servings).engines}
            for engine in engines - set(before):
                await engine.start()
        except (LoadError, ValueError) as error:
            raise PolicyError(f"policy: {error}") from None
        except Exception as error:
            log.exception("a model cannot be loaded")  # memory that is full, for example
            raise PolicyError(f"policy: a model cannot be loaded: {error!r}") from error
        self._servings.replace(*servings)
        log.warning("models served now: %s", ", ".join(self._servings.names))
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
        await engine.stop()
        del self._leaving[engine]
        self._stopped(engine)
        log.warning("model %s has left", engine.model_version)
