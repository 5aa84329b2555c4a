"""The machine that the figures are of, as far as it matters for a comparison; never its name or paths."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

PACKAGES = ("torch", "transformers", "aiokafka", "faust-streaming", "fastapi", "quixstreams")


def machine() -> dict[str, str]:
    about = {
        "cores": str(len(os.sched_getaffinity(0))),
        "CPU": _cpu(),
        "memory": f"{psutil.virtual_memory().total / 1e9:.0f} GB",
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "load before": f"{os.getloadavg()[0]:.1f}",
    }
    for package in PACKAGES:
        try:
            about[package] = version(package)
        except PackageNotFoundError:
            continue
    return about


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
