"""vLLM's own server."""

from __future__ import annotations

import sys
from typing import Any

from models.checkpoints.loading import describe_checkpoint
from tests.engines.server_process import NAME, ServerProcess


class VllmServer(ServerProcess):
    def command(self) -> list[str]:
        model, checkpoint = describe_checkpoint("demo")
        options: dict[str, Any] = {
            "model": model,
            "served-model-name": NAME,
            "dtype": "float32",
            "max-model-len": checkpoint.context_length,
            "max-num-seqs": 64,
            "kv-cache-memory-bytes": 1 << 28,
            "block-size": 32,
            "host": "127.0.0.1",
            "port": self.port,
        }
        arguments = [part for name, value in options.items() for part in (f"--{name}", str(value))]
        return [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *arguments, "--enforce-eager"]
