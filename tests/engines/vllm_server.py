"""vLLM's own server in a process of its own: started, killed, started again on the same port."""

from __future__ import annotations

import http.client
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from app.local.ports import free_port
from models.checkpoints import describe_checkpoint

START_S = 600.0
NAME = "demo-served"


class VllmServer:
    """`url` is that of OpenAI's API. Its log is a file."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/v1"
        self.log = folder / "vllm.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
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
        command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *arguments, "--enforce-eager"]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def wait_ready(self) -> None:
        deadline = time.monotonic() + START_S
        while not self._is_ready():
            assert self._process is not None
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"vLLM's server does not start:\n{self.log.read_text()[-3000:]}")
            time.sleep(0.2)

    def _is_ready(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
