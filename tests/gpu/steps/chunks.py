"""A chunk of a prompt behind a long prefix: attention alone, at its first call and later, and the whole step."""

from __future__ import annotations

import asyncio
import time

import torch

from models.compute.attention import dense, masks_of
from models.engine import EngineOptions, TorchEngine
from tests.gpu.models import checkpoint, prompts, times_of
from tests.gpu.report import Report, milliseconds, settle
from tests.gpu.scale import Scale

PAGE = 16


def run(report: Report, scale: Scale) -> None:
    for cudnn in (False, True) if report.device == "cuda" else (False,):
        torch.backends.cuda.enable_cudnn_sdp(cudnn)
        for heads, kv, size in ((32, 8, 128), (4, 1, 256)):
            for prefix in scale.prefixes:
                _attention(report, scale, prefix, heads, kv, size, cudnn=cudnn)
    asyncio.run(_engine(report, scale))


def _attention(report, scale, prefix, heads, kv, size, *, cudnn):
    device, width = report.device, scale.chunk
    length = prefix + width
    query = torch.randn(width, heads, size, device=device, dtype=torch.bfloat16)
    key, value = torch.randn(2, 1, kv, length, size, device=device, dtype=torch.bfloat16)
    positions = torch.arange(prefix, length, device=device)
    (mask,) = masks_of(positions, [[0, 1, width, length, 0, length // PAGE, 0]], None, False, torch.bfloat16)
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    begun = time.perf_counter()
    dense(query, key, value, mask, width, 0.1)
    settle(device)
    first = 1e3 * (time.perf_counter() - begun)
    later = milliseconds(lambda: dense(query, key, value, mask, width, 0.1), device, 5)
    peak = torch.cuda.max_memory_allocated() >> 20 if device == "cuda" else None
    report.write(heads=heads, size=size, prefix=prefix, cudnn=cudnn, first_ms=first, later_ms=later, peak_MiB=peak)
    try:
        from models.compute.paged_chunk import paged_chunk  # noqa: PLC0415 - torch has it from 2.11 on

        pages = [one[0].transpose(0, 1).reshape(-1, PAGE, kv, size) for one in (key, value)]
        table = torch.arange(len(pages[0]), device=device)[None]

        def over_pages():
            return paged_chunk(query, *pages, table, positions, scale=0.1, window=None)

        off = float((over_pages().float() - dense(query, key, value, mask, width, 0.1).float()).abs().max())
        report.write(by="varlen_attn", off=off, later_ms=milliseconds(over_pages, device, 5))
    except Exception as error:  # noqa: BLE001 - the engine gathers pages then
        report.write(by="varlen_attn", unavailable=f"{type(error).__name__}: {error}".splitlines()[0][:200])


async def _engine(report: Report, scale: Scale) -> None:
    """Prompts whose prefix is in the cache, on the smallest model."""
    shape, *_ = scale.shapes
    longest = max(scale.prefixes) + 4 * scale.chunk
    made = checkpoint(scale, shape, report.device, longest)
    engine = TorchEngine(made, EngineOptions(max_running=4, kv_cache_gb=2.0 if not scale.is_tiny else 0.05))
    await engine.start()
    size = made.model.config.vocab_size
    for prefix in scale.prefixes:
        (ahead,) = prompts(1, prefix, size, seed=prefix)
        begun = time.perf_counter()
        await times_of(engine, [ahead], 1)
        report.write(shape=shape, prompt=prefix, first_token_ms=1e3 * (time.perf_counter() - begun))
        for width in (scale.chunk, scale.chunk + 1, scale.chunk - 7):
            (chunk,) = prompts(1, width, size, seed=width)
            begun = time.perf_counter()
            await times_of(engine, [ahead + chunk], 1)
            report.write(shape=shape, prefix=prefix, chunk=width, first_token_ms=1e3 * (time.perf_counter() - begun))
    await engine.stop()
