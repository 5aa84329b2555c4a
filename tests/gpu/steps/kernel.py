"""The Triton kernel against float64, with NaN in all that it must not read; then how fast it reads pages."""

from __future__ import annotations

import math
from contextlib import suppress
from itertools import product

import torch
import triton  # noqa: F401 - without it there is no kernel

from models.compute.paged_decode import paged_decode
from tests.gpu.report import Report, milliseconds
from tests.gpu.scale import Scale

PAGE = 16
LIMITS = {torch.bfloat16: 2e-2, torch.float16: 3e-3, torch.float32: 1e-5}
SPEEDS = (
    ("8B, one long", 32, 8, 128, 1, 32768, None),
    ("8B", 32, 8, 128, 128, 1024, None),
    ("1B", 32, 8, 64, 128, 1024, None),
    ("Gemma's window", 4, 1, 256, 32, 32768, 512),
)


def run(report: Report, scale: Scale) -> None:
    on_gpu = report.device == "cuda"
    sizes, groups = ((64, 80, 96, 128, 256), (1, 4, 7)) if on_gpu else ((64,), (4,))
    types = LIMITS if on_gpu else {torch.float32: LIMITS[torch.float32]}  # the interpreter's bfloat16 is wrong
    lengths = [1, 15, 16, 17, 4097] if on_gpu else [1, 17, 130]
    cases = [*product(types, sizes, groups, ((None, None), (33, None), (1024, 50.0)))]
    wrong = []
    for dtype, size, group, (window, cap) in cases:
        off = error(report.device, 2 * group, 2, size, lengths, window, cap, dtype)
        if not off <= types[dtype]:
            wrong.append((str(dtype), size, group, window, cap, off))
    report.write(cases=len(cases), wrong=wrong)
    for name, heads, kv, size, rows, length, window in SPEEDS if on_gpu else ():
        _speed(report, scale, name, heads, kv, size, rows, length, window)
    report.fail_unless(not wrong, f"{len(wrong)} of {len(cases)} cases are wrong")


def error(device, heads, kv, size, lengths, window, cap, dtype):
    torch.manual_seed(0)
    rows, width = len(lengths), max(lengths) // PAGE + 2
    pages = rows * width + 1
    table = (torch.randperm(pages - 1)[: rows * width].view(rows, width) + 1).to(device)
    keys, values = torch.randn(2, pages, PAGE, kv, size, device=device).to(dtype)
    for tensor in (keys, values):
        tensor[0] = torch.nan
        for row, length in enumerate(lengths):
            flat = tensor[table[row]].reshape(-1, kv, size)
            flat[length:] = torch.nan
            tensor[table[row]] = flat.view(-1, PAGE, kv, size)
    query = torch.randn(rows, heads, size, device=device).to(dtype)
    ours = paged_decode(
        query, keys, values, table, torch.tensor(lengths, device=device) - 1, scale=size**-0.5, window=window, cap=cap
    )
    worst = 0.0
    for row, length in enumerate(lengths):
        first = max(0, length - window) if window else 0
        k, v = (
            one[table[row]].reshape(-1, kv, size)[first:length].double().repeat_interleave(heads // kv, 1)
            for one in (keys, values)
        )
        scores = torch.einsum("hd,nhd->hn", query[row].double(), k) * size**-0.5
        scores = (scores / cap).tanh() * cap if cap else scores
        off = float((ours[row].double() - torch.einsum("hn,nhd->hd", scores.softmax(-1), v)).abs().max())
        worst = max(worst, off) if math.isfinite(off) else math.inf
    return worst


def _speed(report, scale, name, heads, kv, size, rows, length, window):
    width = length // PAGE
    keys, values = torch.randn(2, rows * width + 1, PAGE, kv, size, device=report.device, dtype=torch.bfloat16)
    table = torch.arange(1, rows * width + 1, device=report.device).view(rows, width)
    lengths = torch.full((rows,), length, device=report.device)
    query = torch.randn(rows, heads, size, device=report.device, dtype=torch.bfloat16)
    read = 2 * 2 * rows * min(length, window or length) * kv * size

    def ours():
        return paged_decode(query, keys, values, table, lengths - 1, scale=0.1, window=window)

    ms = milliseconds(ours, report.device, scale.rounds)
    report.write(shape=name, rows=rows, length=length, ms=ms, GBps=read / ms / 1e6)
    with suppress(ImportError, TypeError, RuntimeError):  # an older torch has it without pages
        from torch.nn.attention.varlen import varlen_attn  # noqa: PLC0415

        bounds = torch.arange(rows + 1, device=report.device, dtype=torch.int32)
        how = {"scale": 0.1, "window_size": (window - 1 if window else -1, 0), "enable_gqa": True, "num_splits": 1}
        pages = {"seqused_k": lengths.int(), "block_table": table.int()}

        def theirs():
            return varlen_attn(query, keys, values, bounds, None, 1, length, **how, **pages)

        off = float((theirs().float() - ours().float()).abs().max())
        ms = milliseconds(theirs, report.device, scale.rounds)
        report.write(shape=name, by="varlen_attn", off=off, ms=ms, GBps=read / ms / 1e6)
