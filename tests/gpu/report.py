"""Lines of JSON as figures come, and the table at the end."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch


@dataclass(frozen=True)
class Report:
    """Of one step. What it writes is on the disk and on the terminal before it goes on."""

    file: Path
    step: str
    device: str
    began: float
    commit: str

    def write(self, **figures: Any) -> None:
        of_run = {"t": round(time.time() - self.began, 1), "step": self.step}
        where = {"device": name_of(self.device), "torch": torch.__version__, "commit": self.commit}
        line = json.dumps(of_run | {name: _short(one) for name, one in figures.items()} | where, default=str)
        print(line, flush=True)
        with self.file.open("a") as file:
            file.write(line + "\n")

    def fail_unless(self, holds: bool, why: str) -> None:
        if not holds:
            raise AssertionError(why)


def name_of(device: str) -> str:
    return torch.cuda.get_device_name() if device == "cuda" and torch.cuda.is_initialized() else device


def commit_here() -> str:
    try:
        asked = ["git", "describe", "--always", "--dirty"]
        return subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def settle(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def milliseconds(call: Callable[[], object], device: str, rounds: int) -> float:
    """Of the device, the median."""
    for _ in range(2):
        call()
    seconds = []
    for _ in range(rounds):
        settle(device)
        begun = time.perf_counter()
        call()
        settle(device)
        seconds.append(time.perf_counter() - begun)
    return 1e3 * sorted(seconds)[len(seconds) // 2]


def table(lines: Iterable[dict[str, Any]]) -> str:
    """What each line measured, without what all have in common."""
    shown = []
    for line in lines:
        figures = {name: one for name, one in line.items() if name not in ("t", "step", "device", "torch", "commit")}
        shown.append(f"{line['step']:<23}" + "  ".join(f"{name} {one}" for name, one in figures.items()))
    return "\n".join(shown)


def _short(figure: Any) -> Any:
    return float(f"{figure:.4g}") if isinstance(figure, float) else figure
