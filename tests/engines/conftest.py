"""Real engines, in the environment that `make engines` makes: Parley with vLLM for CPUs. Elsewhere there is no test."""

from __future__ import annotations

import os
import warnings
from collections.abc import AsyncIterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import pytest
import pytest_asyncio

from models.checkpoints.loading import Checkpoint, describe_checkpoint, load_checkpoint
from models.engine import EngineOptions, TorchEngine
from models.vllm import VllmEngine, VllmOptions, create_vllm_engine
from tests.unit.models import lora

IS_HERE = find_spec("vllm") is not None
collect_ignore_glob = [] if IS_HERE else ["test_*.py"]

ON_CPU = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "TORCHDYNAMO_DISABLE": "1",  # it would compile for half a minute at the first log probability
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_TARGET_DEVICE": "cpu",
}
SMALL: dict[str, Any] = {"enforce_eager": True, "block_size": 32}
TENANTS = 16


def pytest_configure(config: pytest.Config) -> None:
    if not IS_HERE:
        return
    os.environ.update(ON_CPU)
    for ignored in ("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"):
        config.addinivalue_line("filterwarnings", ignored)


@pytest.hookimpl(tryfirst=True)
def pytest_unconfigure() -> None:
    if IS_HERE:  # a core that is killed leaves sockets to the end of the process
        warnings.simplefilter("ignore", ResourceWarning)


@dataclass(frozen=True)
class Engines:
    """vLLM in this process, and the torch engine with the same checkpoint and adapters."""

    checkpoint: Checkpoint
    vllm: VllmEngine
    torch: TorchEngine
    fatal: list[str]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engines(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Engines]:
    folder, described = describe_checkpoint("demo")
    loaded = load_checkpoint("demo", dtype="float32")
    home = tmp_path_factory.mktemp("adapters")
    adapters = [lora.save(home / f"tenant{number}", loaded.model, number) for number in range(TENANTS)]
    own = TorchEngine(loaded, EngineOptions(threads=1), adapters=adapters)
    fatal: list[str] = []
    options = VllmOptions(max_running=64, dtype="float32", kv_cache_gb=0.25, adapters=adapters, more=SMALL)
    vllm = create_vllm_engine(str(folder), described, options, fatal.append)
    await own.start()
    await vllm.start()
    yield Engines(described, vllm, own, fatal)
    await vllm.stop()
    await own.stop()
