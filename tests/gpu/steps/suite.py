"""The tests of a GPU, by pytest, without what their folders share with tests of servers."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest_asyncio  # noqa: F401 - without it they would not be awaited

from tests.gpu.report import Report
from tests.gpu.scale import Scale

MODELS = "tests/unit/models"
FILES = ("engine/test_gpu.py", "weights/quantized/test_gpu.py", "compute/test_gpu_ways.py")
SLOW = ("compute/test_paged_decode.py",)
"""A CPU takes half a minute for them."""
HOW = (
    "-q",
    "-o",
    "addopts=",
    "-o",
    "filterwarnings=default",
    "-p",
    "no:cacheprovider",
    "-rf",
    f"--confcutdir={MODELS}",
)


def run(report: Report, scale: Scale) -> None:
    files = FILES if scale.is_tiny else FILES + SLOW
    variables = {name: one for name, one in os.environ.items() if name != "TRITON_INTERPRET"}
    variables["GPU_TEST_DEVICE"] = report.device
    command = [sys.executable, "-m", "pytest", *HOW, f"--confcutdir={MODELS}", *(f"{MODELS}/{name}" for name in files)]
    ended = subprocess.run(command, capture_output=True, text=True, env=variables, check=False)
    failed = re.findall(r"^FAILED (\S+)", ended.stdout, re.MULTILINE)
    (report.file.parent / "pytest.log").write_text(ended.stdout + ended.stderr)
    last = (ended.stdout.strip() or ended.stderr.strip()).splitlines()[-1:]
    report.write(status=ended.returncode, last=last, failed=failed)
    report.fail_unless(ended.returncode == 0, f"tests failed: {', '.join(failed) or last}")
