"""With products of integers and kernels, logits have the same bits by torch's code for each kind of CPU."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import pytest
import torch

from models.weights import Kind, Products, replace_layers
from models.weights.int8 import why_not
from tests.unit.models import tiny
from tests.unit.models.compute.test_fused import both_ways, make
from tests.unit.models.engine.schedules import ARCHITECTURES

ARCHITECTURE = "gemma3_text"
"""It has all that kernels can do: norms of heads, norms behind each part, windows, two kinds of angles."""
WIDER = {"hidden_size": 256, "intermediate_size": 512, "head_dim": 64}
COMPUTE = """
import sys, torch
from tests.unit.models.kernels.test_any_cpu import bits

print(torch.backends.cpu.get_cpu_capability(), bits(*sys.argv[1:]))
"""


def bits(architecture, weights):
    """Of the logits with these weights on this process's kind of CPU."""
    model = make(architecture, **WIDER)
    model.load_state_dict(torch.load(weights))
    replace_layers(model, Products(Kind.INT8, Kind.INT8), torch.float32)
    logits = both_ways(model, by_kernels=True)[0].contiguous()
    return hashlib.sha256(logits.numpy().tobytes()).hexdigest()


@pytest.mark.skipif(why_not(torch.device("cpu")) is not None, reason="no products of integers")
def test_the_bits_of_int8_are_those_of_every_cpu(kernels, tmp_path):
    del kernels
    weights = tmp_path / "weights.pt"
    torch.save(tiny.model(ARCHITECTURE, **(ARCHITECTURES[ARCHITECTURE] | WIDER)).state_dict(), weights)
    found = {}
    for capability in ("avx2", "default"):
        environment = os.environ | {"ATEN_CPU_CAPABILITY": capability, "ONEDNN_MAX_CPU_ISA": "AVX2"}
        found |= computed(weights, environment)
    found[torch.backends.cpu.get_cpu_capability()] = bits(ARCHITECTURE, str(weights))
    assert len(found) > 1, "this torch knows one kind of CPU only"
    assert len(set(found.values())) == 1, found


def computed(weights, environment):
    command = [sys.executable, "-W", "ignore", "-c", COMPUTE, ARCHITECTURE, str(weights)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    kind, found = done.stdout.split()[-2:]
    return {kind: found}
