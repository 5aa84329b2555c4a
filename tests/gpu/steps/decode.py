"""Steps in which 1, 8, 32 and 128 answers each get a token, against the time that memory needs for what they read.

That is all weights but the table of embeddings, and the keys and values of all rows, at the speed of a copy measured
beside it. With CUDA graphs and without, on one engine, whose prompts stay in its cache.
"""

from __future__ import annotations

import asyncio
import time

import torch

from models.checkpoints.loading import Checkpoint
from models.engine import EngineOptions, TorchEngine
from models.files.architectures import kv_bytes_per_token
from models.files.errors import CheckpointError, first_line
from models.weights.replacing import held_bytes
from tests.gpu.models import checkpoint, pack_in_four_bits, prompts, times_of
from tests.gpu.report import Report
from tests.gpu.scale import Scale
from tests.gpu.steps.roofline import bandwidth

LEAST_STEPS = 8


def run(report: Report, scale: Scale, shape: str, form: str) -> None:
    speed = bandwidth(report.device, scale)
    made = checkpoint(scale, shape, report.device, 2 * scale.prompt)
    if form == "gptq4":
        pack_in_four_bits(made.model)
    asyncio.run(_measure(report, scale, made, speed))


async def _measure(report: Report, scale: Scale, made: Checkpoint, speed: float) -> None:
    for most in reversed(scale.rows):
        try:
            engine = await _started(report, scale, made, most)
            break
        except (torch.OutOfMemoryError, CheckpointError) as error:
            report.write(rows=most, error=first_line(error))
    else:
        raise RuntimeError("the memory is too small for a single row")
    graphs = engine._runner._graphs
    asked = prompts(most, scale.prompt, made.model.config.vocab_size)
    for with_graphs in (True, False):
        engine._runner._graphs = graphs if with_graphs else None
        for rows in (one for one in scale.rows if one <= most):
            begun = time.perf_counter()
            await times_of(engine, asked[:rows], 1)
            first_s = time.perf_counter() - begun
            engine.times.clear()
            step_s = _step_s(await times_of(engine, asked[:rows], scale.new))
            least_s = _bytes_read(made, rows, scale) / speed
            report.write(
                rows=rows,
                graphs=with_graphs and graphs is not None,
                tokens_per_s=rows / step_s,
                step_ms=1e3 * step_s,
                least_ms=1e3 * least_s,
                share=least_s / step_s,
                launch_ms=1e3 * engine.times.forward / engine.times.steps,
                early=engine.times.followed / engine.times.steps,
                first_s=first_s,
            )
        if graphs is None:
            break
    await engine.stop()


async def _started(report: Report, scale: Scale, made: Checkpoint, rows: int) -> TorchEngine:
    gib = 1.3 * rows * (scale.prompt + 2 * scale.new) * _token_bytes(made) / (1 << 30)
    engine = TorchEngine(made, EngineOptions(max_running=rows, kv_cache_gb=gib))
    begun = time.perf_counter()
    await engine.start()
    captured = engine._runner._graphs is not None
    report.write(most=rows, start_s=time.perf_counter() - begun, captured=captured, fused=engine.is_fused)
    return engine


def _step_s(times_of_rows: list[list[float]]) -> float:
    """While all rows decode."""
    first, last = max(times[0] for times in times_of_rows), min(times[-1] for times in times_of_rows)
    steps = sum(first <= at <= last for at in times_of_rows[0]) - 1
    if steps < LEAST_STEPS:
        raise RuntimeError(f"all rows decoded together for {steps} steps only, which is too few to measure")
    return (last - first) / steps


def _bytes_read(made: Checkpoint, rows: int, scale: Scale) -> int:
    weights = held_bytes(made.model)
    if not made.model.config.tie_word_embeddings:
        weights -= made.model.get_input_embeddings().weight.nbytes
    return weights + rows * (scale.prompt + scale.new // 2) * _token_bytes(made)


def _token_bytes(made: Checkpoint) -> int:
    return kv_bytes_per_token(made.model.config, made.model.dtype.itemsize)
