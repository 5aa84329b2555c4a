"""Which clients there are, and how their scripts are run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.integration.npm import NODE, installed

ROOM = Path(__file__).parent
PACKAGES = ROOM.parents[1] / "deploy" / "packages"
TIMEOUT_S = 900


@dataclass(frozen=True, slots=True)
class PythonClient:
    """`script` of this folder, in an environment with `packages`. `has_users`: it talks to the gateway with a key of a
    tenant, and names its users.
    """

    name: str
    script: str
    packages: tuple[str, ...]
    has_users: bool = False

    def command(self, *arguments: str) -> list[str]:
        packages = [part for package in self.packages for part in ("--with", package)]
        run = [sys.executable, "-m", "uv", "run", "--quiet", "--no-project", "--isolated", "--python", sys.executable]
        return [*run, *packages, "python", str(ROOM / self.script), *arguments]


@dataclass(frozen=True, slots=True)
class NodeClient:
    name: str
    script: str
    has_users: bool = False

    def command(self, *arguments: str) -> list[str]:
        folder = ROOM / "npm"
        installed(folder)
        return [str(NODE), str(folder / self.script), *arguments]


Client = PythonClient | NodeClient

CLIENTS: tuple[Client, ...] = (
    PythonClient("parley-client", "parley_client_client.py", (str(PACKAGES / "python"),)),
    PythonClient("langchain", "langchain_client.py", ("langchain==1.4.7", "langchain-openai==1.7.3")),
    PythonClient("litellm", "litellm_client.py", ("litellm==1.106.2", "mcp==2.3.0")),
    PythonClient("pydantic-ai", "pydantic_ai_client.py", ("pydantic-ai-slim[openai]==2.68.0",)),
    PythonClient("instructor", "instructor_client.py", ("instructor==1.17.0",)),
    PythonClient("openai-agents", "openai_agents_client.py", ("openai-agents==0.24.0",)),
    PythonClient("llama-index", "llama_index_client.py", ("llama-index-llms-openai-like==0.8.1",)),
    PythonClient("haystack", "haystack_client.py", ("haystack-ai==3.4.0",)),
    PythonClient("guidellm", "guidellm_client.py", ("guidellm==0.8.1",)),
    PythonClient("vllm-bench", "vllm_bench_client.py", ("vllm==0.32.0",)),
    NodeClient("ai-sdk", "ai_sdk.mjs"),
    PythonClient("milvus", "milvus_client.py", ("langchain-milvus==0.4.0", "langchain-openai==1.7.3")),
    PythonClient(
        "llama-milvus",
        "llama_index_milvus_client.py",
        ("llama-index-vector-stores-milvus==1.2.0", "llama-index-embeddings-openai-like==0.4.0"),
    ),
    PythonClient("open-webui", "open_webui_client.py", ("open-webui==0.12.4", "playwright==1.65.2"), has_users=True),
)


def named(name: str) -> Client:
    return next(client for client in CLIENTS if client.name == name)


def results(client: Client, gateway: str, milvus: str = "") -> list[tuple[str, str | None]]:
    """Each check of the client with its error, None if it passed. A script that does not run is one failed check.

    `gateway` and `milvus` are addresses.
    """
    # Clients must not find a key, or report to anybody.
    quiet = {"OTEL_SDK_DISABLED": "true", "HAYSTACK_TELEMETRY_ENABLED": "False", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    environment = {**os.environ, **quiet, "OPENAI_API_KEY": "any", "HF_HUB_OFFLINE": "1"}
    environment.pop("PYTHONPATH", None)
    try:
        done = subprocess.run(
            client.command(gateway, milvus),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            env=environment,
            check=False,
        )
    except (subprocess.SubprocessError, OSError) as error:
        return [("start", str(error))]
    found = []
    for line in done.stdout.splitlines():
        if line.startswith('{"check"'):
            result = json.loads(line)
            found.append((result["check"], result["error"]))
    return found or [("start", (done.stdout + done.stderr)[-2000:])]
