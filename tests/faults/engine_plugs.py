"""Faults of the engine, built into a worker as plugs.py does; they happen in its AT-th step that draws tokens.

Only the real engine has steps. Whatever is patched is what a device or a model can do by itself: raise, give logits
that are not finite, or never come back.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

import torch

from models.engine import torch_engine
from models.engine.runner import Runner
from models.engine.sequence import ScheduledChunk

HANG_S = 3.0
"""The longest step of an engine under test; by default it is two minutes."""


def engine_out_of_memory(at: int) -> None:
    """Of the answers in one step one does not fit, alone either."""
    start, steps, failing = Runner._start, 0, False

    def patched(runner: Runner, slices: Sequence[ScheduledChunk], batch: Any, began: float) -> Any:
        nonlocal steps, failing
        steps += all(part.count == 1 for part in slices)
        if failing or steps == at:
            failing, steps = len(slices) > 1, at + 1
            raise torch.OutOfMemoryError("tried to allocate more than there is")
        return start(runner, slices, batch, began)

    Runner._start = patched  # type: ignore[method-assign, assignment]


def engine_not_finite(at: int) -> None:
    """The logits of one answer are NaN."""
    forward, steps = Runner.forward, 0

    def patched(runner: Runner, batch: Any) -> torch.Tensor:
        nonlocal steps
        logits = forward(runner, batch)
        steps += bool(batch.draws)
        if steps == at and batch.draws:
            steps += 1
            logits[0] = torch.nan
        return logits

    Runner.forward = patched  # type: ignore[method-assign, assignment]


def engine_hangs(at: int) -> None:
    """A step never ends; the watchdog is the only one to notice."""
    init = torch_engine.TorchEngine.__init__

    def impatient(engine: Any, checkpoint: Any, options: Any, *more: Any) -> None:
        init(engine, checkpoint, dataclasses.replace(options, hang_s=HANG_S), *more)

    torch_engine.TorchEngine.__init__ = impatient  # type: ignore[method-assign, assignment]
    _from_step(at, lambda: time.sleep(3600))


def engine_dies(at: int) -> None:
    """The device computes nothing any more, so that the engine's thread ends."""

    def happens() -> None:
        raise RuntimeError("the device is lost")

    _from_step(at, happens)


def _from_step(at: int, happens: Any) -> None:
    forward, steps = Runner.forward, 0

    def patched(runner: Runner, batch: Any) -> torch.Tensor:
        nonlocal steps
        steps += bool(batch.draws)
        if steps >= at:
            happens()
        return forward(runner, batch)

    Runner.forward = patched  # type: ignore[method-assign, assignment]


PLUGS = {plug.__name__: plug for plug in (engine_out_of_memory, engine_not_finite, engine_hangs, engine_dies)}
