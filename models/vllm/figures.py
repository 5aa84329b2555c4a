"""VLLM's own figures of an engine: what it computes, what waits, its cache. vLLM tells them after each of its steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class _OfCore:
    running: int
    waiting: int
    kv_cache_usage: float


class Figures:
    """Of all cores of one engine. vLLM may change what its statistics have, so what is not there counts as 0."""

    def __init__(self) -> None:
        self.preemptions = 0
        self.steps = 0
        self._cores: dict[int, _OfCore] = {}

    @property
    def running(self) -> int:
        return sum(core.running for core in self._cores.values())

    @property
    def waiting(self) -> int:
        return sum(core.waiting for core in self._cores.values())

    @property
    def kv_cache_usage(self) -> float:
        return max((core.kv_cache_usage for core in self._cores.values()), default=0.0)

    def loggers(self) -> list[Callable[..., Any]]:
        """For vLLM's `stat_loggers`, its interface for statistics of one's own."""
        from vllm.v1.metrics.loggers import StatLoggerBase  # type: ignore[import-not-found,unused-ignore]

        figures = self

        class Logger(StatLoggerBase):  # type: ignore[misc,unused-ignore]
            def __init__(self, vllm_config: Any, engine_index: int = 0) -> None:  # noqa: ARG002 - vLLM's signature
                self._core = engine_index

            def record(self, scheduler_stats: Any, iteration_stats: Any, *_more: Any, **_named: Any) -> None:
                figures.read(self._core, scheduler_stats, iteration_stats)

            def log_engine_initialized(self) -> None:
                """Nothing to say."""

        return [Logger]

    def read(self, core: int, scheduler: Any, iteration: Any) -> None:
        if scheduler is not None:
            self.steps += 1
            waiting = getattr(scheduler, "num_waiting_reqs", 0) + getattr(scheduler, "num_skipped_waiting_reqs", 0)
            usage = getattr(scheduler, "kv_cache_usage", 0.0)
            self._cores[core] = _OfCore(getattr(scheduler, "num_running_reqs", 0), waiting, usage)
        self.preemptions += getattr(iteration, "num_preempted_reqs", 0)
