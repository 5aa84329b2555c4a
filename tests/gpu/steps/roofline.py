"""What the device can: bytes a second of its memory, and products a second."""

from __future__ import annotations

import torch
from torch.nn.functional import linear

from tests.gpu.report import Report, milliseconds
from tests.gpu.scale import Scale


def run(report: Report, scale: Scale) -> None:
    report.write(copy_GBps=bandwidth(report.device, scale) / 1e9)
    inputs, outputs = scale.product, 2 * scale.product
    weight = torch.randn(outputs, inputs, device=report.device, dtype=torch.bfloat16)
    for rows in (1, 8, 32, 128, scale.product):
        given = torch.randn(rows, inputs, device=report.device, dtype=torch.bfloat16)
        ms = milliseconds(lambda given=given: linear(given, weight), report.device, scale.rounds)
        work = 2 * rows * inputs * outputs
        report.write(product=[rows, inputs, outputs], ms=ms, TFLOPs=work / ms / 1e9, GBps=weight.nbytes / ms / 1e6)


def bandwidth(device: str, scale: Scale) -> float:
    """Bytes a second, read and written."""
    source = torch.empty(scale.copied, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * scale.copied / milliseconds(lambda: target.copy_(source), device, scale.rounds) * 1e3
