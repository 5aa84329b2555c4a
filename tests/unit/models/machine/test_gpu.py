"""A process that has described a model may fork one that uses CUDA, as vLLM does."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import os
from models.checkpoints.loading import describe_checkpoint
from models.machine.gpu import has_gpu

describe_checkpoint("demo")
has_gpu()
if not os.fork():
    import torch

    print(torch.cuda._is_in_bad_fork(), flush=True)
    os._exit(0)
os.wait()
"""


def test_a_process_may_be_forked_after_a_model_was_described() -> None:
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"], done.stderr
