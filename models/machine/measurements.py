"""What was measured for this machine once, kept for the next start.

A file of the user's cache, named after all that may change a measurement: the processor, torch with its libraries, and
the variables that steer them. Whatever else it depends on, as shapes and threads, belongs into its key. A file that
cannot be read or written costs the time of a measurement, and nothing else.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import platform
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import torch

log = logging.getLogger(__name__)

_STEERS = ("ATEN_", "BLIS_", "DNNL_", "MKL_", "ONEDNN_", "OPENBLAS_")
"""Beginnings of variables by which the libraries that multiply choose their code."""


def read(subject: str) -> dict[str, Any]:
    """The measurements of `subject` by key; empty if there are none."""
    return dict(_all().get(subject, {}))


def keep(subject: str, found: dict[str, Any]) -> None:
    """Add to what is kept. Of two workers that write at once, the later one keeps its own."""
    every = _all()
    every[subject] = every.get(subject, {}) | found
    try:
        cache_folder().mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=cache_folder(), delete=False) as unfinished:
            json.dump(every, unfinished)
        Path(unfinished.name).replace(_file())
    except OSError as error:
        log.info("the machine is measured anew at each start, since this cannot be kept: %s", error)


def cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "parley"


def _all() -> dict[str, dict[str, Any]]:
    try:
        found = json.loads(_file().read_text())
        return {str(name): dict(values) for name, values in found.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _file() -> Path:
    return cache_folder() / f"measured-{machine()}.json"


@cache
def machine() -> str:
    """Sixteen digits that differ where a measurement may differ."""
    steered = sorted(f"{name}={value}" for name, value in os.environ.items() if name.startswith(_STEERS))
    parts = (
        torch.__config__.show(),
        torch.backends.cpu.get_cpu_capability(),
        platform.machine(),
        _processor(),
        *steered,
    )
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:16]


def _processor() -> str:
    """Its name, microcode and flags, as Linux tells them of the first core."""
    try:
        first = Path("/proc/cpuinfo").read_text().partition("\n\n")[0]
    except OSError:
        return platform.processor() or platform.machine()
    told = ("vendor_id", "cpu family", "model", "stepping", "microcode", "flags", "Features", "CPU ")
    return "\n".join(line for line in first.splitlines() if line.startswith(told))
