"""The kernels, for tests that call them as torch does."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from models.kernels import library, target
from models.kernels.schemas import NumberForm

COMPILE = """
import logging, sys
from pathlib import Path
from models.kernels import library

logging.basicConfig(level="INFO", stream=sys.stdout)
name = library.file_name()
library.file_name, library.HERE = lambda *_: name, Path(sys.argv[1])
library.object_code()
"""


@dataclass(frozen=True)
class Compiled:
    """Kernels for a CPU of `kind` in `file`, as the first start of a worker leaves them in its `cache`."""

    kind: str
    cache: Path
    file: Path
    log: str

    @property
    def environment(self):
        return {"XDG_CACHE_HOME": str(self.cache), target.KIND: self.kind}


@pytest.fixture(scope="session")
def compiled(kernels, tmp_path_factory):
    """For the least kind of CPU, since compiling takes twenty seconds, and all kinds must have the same bits."""
    del kernels
    kind, cache, empty = target.kinds()[-1].name, tmp_path_factory.mktemp("cache"), tmp_path_factory.mktemp("empty")
    environment = os.environ | {"XDG_CACHE_HOME": str(cache), target.KIND: kind}
    command = [sys.executable, "-W", "ignore", "-c", COMPILE, str(empty)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    (file,) = (cache / "parley").iterdir()
    return Compiled(kind, cache, file, done.stdout)


@pytest.fixture(scope="session")
def kernels():
    if reason := target.why_not():
        pytest.skip(reason)
    assert library.load() is None
    return torch.ops.parley


@pytest.fixture(params=[torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def dtype(request):
    return request.param


@pytest.fixture(params=NumberForm, ids=lambda form: form.name.lower())
def form(request):
    return request.param


@pytest.fixture
def chance():
    return torch.Generator().manual_seed(7)
