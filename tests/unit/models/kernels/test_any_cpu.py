"""By kernels, integers and stored weights have logits with the same bits, by torch's code for each kind of CPU."""

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


def bits(architecture, weights, kind):
    """Of the logits with these weights in that form on this process's kind of CPU."""
    model = make(architecture, **WIDER)
    model.load_state_dict(torch.load(weights))
    replace_layers(model.to(torch.bfloat16), Products(Kind(kind), Kind(kind)), torch.float32)
    logits = both_ways(model, by_kernels=True)[0].contiguous()
    return hashlib.sha256(logits.numpy().tobytes()).hexdigest()


@pytest.mark.parametrize("kind", [Kind.INT8, Kind.STORED])
def test_its_bits_are_those_of_every_cpu(kernels, tmp_path, kind):
    del kernels
    if kind is Kind.INT8 and (reason := why_not(torch.device("cpu"))):
        pytest.skip(reason)
    weights = tmp_path / "weights.pt"
    torch.save(tiny.model(ARCHITECTURE, **(ARCHITECTURES[ARCHITECTURE] | WIDER)).state_dict(), weights)
    found = {}
    for capability in ("avx2", "default"):
        environment = os.environ | {"ATEN_CPU_CAPABILITY": capability, "ONEDNN_MAX_CPU_ISA": "AVX2"}
        found |= computed(weights, kind, environment)
    found[torch.backends.cpu.get_cpu_capability()] = bits(ARCHITECTURE, str(weights), kind)
    assert len(found) > 1, "this torch knows one kind of CPU only"
    assert len(set(found.values())) == 1, found


def computed(weights, form, environment):
    command = [sys.executable, "-W", "ignore", "-c", COMPUTE, ARCHITECTURE, str(weights), form]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    kind, found = done.stdout.split()[-2:]
    return {kind: found}
