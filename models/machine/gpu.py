"""Whether there is a GPU, asked so that the process may fork afterwards.

CUDA's runtime, once it has been asked, cannot be used in a process that is forked, and vLLM forks its engine. So the
device's files are looked for first, and then NVML, as vLLM itself does.
"""

from __future__ import annotations

import os
from pathlib import Path

import torch

_FILES = ("nvidia*", "nvhost*", "nvmap", "kfd", "dxg")
"""Of Linux's drivers: NVIDIA's, for servers and for Jetson, AMD's, and that of Windows."""


def has_gpu() -> bool:
    if not any(next(Path("/dev").glob(name), None) for name in _FILES):
        return False
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    return torch.cuda.is_available()
