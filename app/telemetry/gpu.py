"""The state of this process's GPUs; empty without one. Never imports torch for it."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from prometheus_client.core import GaugeMetricFamily, Metric


@dataclass(frozen=True, slots=True)
class Gpu:
    """Bytes, and utilization from 0 to 1; None if nvidia-ml-py is not installed."""

    name: str
    used: int
    total: int
    busy: float | None


def gpus() -> list[Gpu]:
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return []
    # Querying another GPU would allocate memory on it.
    ours = [number for number in range(torch.cuda.device_count()) if torch.cuda.memory_reserved(number)]
    return [_read(torch, number) for number in ours]


def _read(torch: Any, number: int) -> Gpu:
    free, total = torch.cuda.mem_get_info(number)
    try:
        busy = torch.cuda.utilization(number) / 100
    except Exception:  # noqa: BLE001  NVML's own errors, a slice of a GPU has none: the other figures go on
        busy = None
    return Gpu(str(number), total - free, total, busy)


def gpu_families(found: Iterable[Gpu]) -> Iterable[Metric]:
    used = GaugeMetricFamily("parley:gpu_memory_used_bytes", "Of all processes, in bytes.", labels=["gpu"])
    total = GaugeMetricFamily("parley:gpu_memory_bytes", "there is", labels=["gpu"])
    busy = GaugeMetricFamily("parley:gpu_utilization_ratio", "GPU utilization, 0 to 1.", labels=["gpu"])
    for gpu in found:
        used.add_metric([gpu.name], gpu.used)
        total.add_metric([gpu.name], gpu.total)
        if gpu.busy is not None:
            busy.add_metric([gpu.name], gpu.busy)
    return used, total, busy
