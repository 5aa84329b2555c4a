"""Servers of OpenAI's chat API as their users start them: Parley whole, llama.cpp's, vLLM's, LiteLLM before it, and
transformers' own.
"""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self

import psutil

from app.kafka.topics import create_topics
from app.local.ports import free_port
from app.settings import Settings
from tests.benchmarks.chat_load import ChatUsers
from tests.benchmarks.processes import ROOT
from tests.benchmarks.rig import Rig
from tests.benchmarks.systems import PEER_PACKAGES
from tests.faults.worker_process import WorkerProcess
from tests.integration.gateway.gateway_process import GatewayProcess
from tests.llama_cpp_build import SERVER, SkippedError, build

ENGINES, LITELLM = ROOT / ".venv" / "engines", ROOT / ".venv" / "litellm"
START_S = 300.0
CONTEXT = 1024
"""Tokens that a conversation may have."""
NAME, KEY = "chat", "a-key"
NOTHING: Mapping[str, str] = MappingProxyType({})
_KEY_VARIABLE = "BENCH_KEY"
_BEFORE = f"""
[models.outside]
engine = "openai"
dialect = "{{dialect}}"
urls = ["{{url}}"]
model = "{{name}}"
api_key_env = "{_KEY_VARIABLE}"
"""


class ChatServer(ABC):
    """`parts` are its processes by what the table calls them; `start_s` is how long it took to answer."""

    def __init__(self, rig: Rig, name: str) -> None:
        self.rig, self.name = rig, name
        self.start_s = 0.0

    async def __aenter__(self) -> Self:
        began = time.perf_counter()
        try:
            await self.start()
        except BaseException:
            self.kill()
            raise
        self.start_s = time.perf_counter() - began
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.kill()

    @abstractmethod
    async def start(self) -> None:
        """Raises `SkippedError` where it is not installed."""

    @abstractmethod
    def users(self) -> ChatUsers: ...

    @abstractmethod
    def parts(self) -> Mapping[str, Sequence[int]]: ...

    @abstractmethod
    def kill(self) -> None: ...

    def processor_s(self) -> dict[str, float]:
        """Processor seconds of each part since its start."""
        found = {}
        for name, pids in self.parts().items():
            times = [one.cpu_times() for pid in pids for one in _family(pid)]
            found[name] = sum(one.user + one.system for one in times)
        return found

    def memory(self) -> int:
        """Resident bytes, without Kafka."""
        parts = {name: pids for name, pids in self.parts().items() if name != "broker"}
        return sum(one.memory_info().rss for pids in parts.values() for pid in pids for one in _family(pid))


def _family(pid: int) -> list[psutil.Process]:
    first = psutil.Process(pid)
    return [first, *first.children(recursive=True)]


class ParleyServer(ChatServer):
    """Kafka, a worker and a gateway, at their defaults but for the embedder."""

    def __init__(self, rig: Rig, name: str, environment: Mapping[str, str] = NOTHING, **settings: Any) -> None:
        super().__init__(rig, name)
        label = "".join(filter(str.isalnum, name)).lower()
        self._settings = Settings(
            _env_file=None,
            broker=f"kafka://{rig.server}",
            data_dir=rig.folder / label,
            topic_prefix=f"{label}-",
            app_id=label,
            partitions=rig.partitions,
            **({"model": rig.model, "embedder": "none", "context_length": CONTEXT} | settings),
        )
        self._worker = WorkerProcess(self._settings, rig.folder / f"{label}.log", **environment)
        self._gateway = GatewayProcess(self._settings, rig.folder / f"{label}-gateway.log")

    async def start(self) -> None:
        await create_topics(self._settings)
        self._worker.start()
        self._gateway.start()
        self._worker.wait_owning(self.rig.partitions)

    def users(self) -> ChatUsers:
        return ChatUsers(f"{self._gateway.url}/v1", "", "")

    def parts(self) -> Mapping[str, Sequence[int]]:
        return {"worker": [self._worker.pid], "gateway": [self._gateway.pid], "broker": self.rig.brokers}

    def kill(self) -> None:
        self._gateway.kill()
        self._worker.kill()


class CommandServer(ChatServer):
    """A program with a port of its own; `dialect`: of OpenAI's API."""

    path = "/health"
    dialect = "openai"

    def __init__(self, rig: Rig, name: str) -> None:
        super().__init__(rig, name)
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def command(self) -> list[str]: ...

    async def start(self) -> None:
        command = self.command()
        log = self.rig.folder / f"{self.port}.log"
        with log.open("ab") as out:
            self._process = subprocess.Popen(command, stdout=out, stderr=out, cwd=self.rig.folder)
        deadline = time.monotonic() + START_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{self.name} did not start: {log.read_text(errors='replace')[-500:]}")
            time.sleep(0.1)

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", self.path)
            return connection.getresponse().status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def require_running(self) -> None:
        """Raise `SkippedError` unless it runs: nothing can stand before it."""
        if not self.is_running:
            raise SkippedError(f"{self.name} does not run")

    def users(self) -> ChatUsers:
        return ChatUsers(self.url, NAME, KEY)

    def parts(self) -> Mapping[str, Sequence[int]]:
        assert self._process is not None
        return {"server": [self._process.pid]}

    def kill(self) -> None:
        if self._process is not None and self.is_running:
            for one in reversed(_family(self._process.pid)):
                one.kill()
            self._process.wait()


class ParleyBefore(ParleyServer):
    """Parley before a server that runs already: its own engine has nothing to do."""

    def __init__(self, rig: Rig, name: str, before: CommandServer) -> None:
        policy = rig.folder / "before.toml"
        policy.write_text(_BEFORE.format(url=before.url, name=NAME, dialect=before.dialect))
        super().__init__(rig, name, {_KEY_VARIABLE: KEY}, engine="paced", policy=policy)
        self._before = before

    async def start(self) -> None:
        self._before.require_running()
        await super().start()

    def users(self) -> ChatUsers:
        return ChatUsers(f"{self._gateway.url}/v1", "outside", "", takes_least=self._before.dialect == "vllm")

    def parts(self) -> Mapping[str, Sequence[int]]:
        return {**super().parts(), **self._before.parts()}


class LlamaCpp(CommandServer):
    """With a slot for each of `slots` answers, and all cores. Where it dies of its own order of weights (its code for
    AMX does in some virtual machines), it keeps that of the file.
    """

    def __init__(self, rig: Rig, name: str, weights: Path, slots: int) -> None:
        super().__init__(rig, name)
        self._weights, self._slots = weights, slots
        self._options: tuple[str, ...] = ()

    async def start(self) -> None:
        try:
            await super().start()
        except RuntimeError:
            self._options = ("--no-repack",)
            self.name += " --no-repack"
            await super().start()

    def command(self) -> list[str]:
        where = ["--host", "127.0.0.1", "--port", str(self.port), "--alias", NAME, "--api-key", KEY, "--offline"]
        size = ["--ctx-size", str(self._slots * CONTEXT), "--parallel", str(self._slots)]
        threads = ["--threads", str(len(os.sched_getaffinity(0))), "--chat-template", "gemma"]
        return [str(build(SERVER)), "--model", str(self._weights), *where, *size, *threads, *self._options]


class Vllm(CommandServer):
    """In an environment of its own (`make engines`), eager, in the weights' own data type."""

    dialect = "vllm"

    def __init__(self, rig: Rig, name: str, model: Path) -> None:
        super().__init__(rig, name)
        self._model = model

    @property
    def is_installed(self) -> bool:
        return (ENGINES / ".installed").exists()

    def command(self) -> list[str]:
        python = ENGINES / "bin" / "python"
        if not self.is_installed:
            raise SkippedError("not installed; `make engines` does that")
        options = {
            "model": self._model, "served-model-name": NAME, "max-model-len": CONTEXT, "host": "127.0.0.1",
            "port": self.port, "kv-cache-memory-bytes": 1 << 28, "api-key": KEY,
        }  # fmt: skip
        arguments = [part for name, value in options.items() for part in (f"--{name}", str(value))]
        return [str(python), "-m", "vllm.entrypoints.openai.api_server", *arguments, "--enforce-eager"]


class TransformersServe(CommandServer):
    """`transformers serve`, the library's own server: a plain loop for each answer. Its continuous batching takes three
    to five times as long on a CPU. In float32 where the CPU computes nothing in bfloat16 itself, which is faster there.
    """

    def __init__(self, rig: Rig, name: str, model: Path) -> None:
        super().__init__(rig, name)
        self._model = model

    def command(self) -> list[str]:
        if not (PEER_PACKAGES / "accelerate").exists():
            raise SkippedError("not installed; `make .venv/peers` does that")
        flags = Path("/proc/cpuinfo").read_text().split()
        dtype = "bfloat16" if {"avx512_bf16", "amx_bf16"} & {*flags} else "float32"
        environment = ["env", f"PYTHONPATH={PEER_PACKAGES}", "HF_HUB_OFFLINE=1"]
        where = ["--host", "127.0.0.1", "--port", str(self.port), "--device", "cpu", "--dtype", dtype]
        return [*environment, str(Path(sys.executable).with_name("transformers")), "serve", str(self._model), *where]

    def users(self) -> ChatUsers:
        return ChatUsers(self.url, str(self._model), KEY, takes_least=False)


class LiteLlm(CommandServer):
    """LiteLLM's proxy before a server that runs already."""

    path = "/health/liveliness"

    def __init__(self, rig: Rig, name: str, before: CommandServer) -> None:
        super().__init__(rig, name)
        self._before = before

    def command(self) -> list[str]:
        self._before.require_running()
        program = LITELLM / "bin" / "litellm"
        if not program.exists():
            raise SkippedError("not installed; `uv venv .venv/litellm` and `litellm[proxy]` in it do that")
        arguments = {"model": f"openai/{NAME}", "alias": NAME, "api_base": self._before.url}
        return [
            *("env", f"OPENAI_API_KEY={KEY}", "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY=true", str(program)),
            *("--host", "127.0.0.1", "--port", str(self.port)),
            *(part for name, value in arguments.items() for part in (f"--{name}", value)),
        ]

    def parts(self) -> Mapping[str, Sequence[int]]:
        return {"proxy": super().parts()["server"], **self._before.parts()}
