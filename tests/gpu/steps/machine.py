"""What this machine has, and what it lacks."""

from __future__ import annotations

import os
import shutil
import sys
from importlib.util import find_spec

import torch

from tests.gpu.report import Report
from tests.gpu.scale import Scale

PACKAGES = ("triton", "transformers", "tokenizers", "safetensors", "numpy", "jinja2", "llguidance", "msgspec", "numba")
OF_TESTS = ("pytest", "pytest_asyncio", "pytest_timeout", "aiokafka", "faust", "pydantic")


def run(report: Report, scale: Scale) -> None:
    report.write(
        python=sys.version.split()[0],
        cuda=torch.version.cuda,
        cores=len(os.sched_getaffinity(0)),
        compiler=shutil.which("gcc") or shutil.which("cc") or shutil.which("clang"),
        lacks=[name for name in (*PACKAGES, *OF_TESTS) if find_spec(name) is None],
    )
    if report.device == "cuda":
        free, whole = torch.cuda.mem_get_info()
        report.write(
            gpus=torch.cuda.device_count(),
            capability=torch.cuda.get_device_capability(),
            gib=whole / (1 << 30),
            free_gib=free / (1 << 30),
            cudnn=torch.backends.cudnn.version(),
        )
