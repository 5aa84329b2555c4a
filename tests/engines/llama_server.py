"""llama.cpp's own server, with the demo's model as a GGUF file."""

from __future__ import annotations

from pathlib import Path

from models.checkpoints.loading import load_checkpoint
from tests.engines.server_process import NAME, ServerProcess
from tests.llama_cpp_build import SERVER, program
from tests.unit.models.gguf.tiny_gguf import byte_level, contents

KEY = "a-key"
SLOTS = 4


class LlamaServer(ServerProcess):
    """Computes `SLOTS` answers at once. llama.cpp has no way to cut numbers as the demo's tokenizer does, so it answers
    as that model does where no number of several digits is said.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        checkpoint = load_checkpoint("demo", dtype="float32", by_transformers=True)
        self._context = checkpoint.context_length
        template = checkpoint.tokenizer.chat_template
        made = contents("llama", checkpoint.model, byte_level(checkpoint.tokenizer, template))
        self._model = made.write(folder / "demo.gguf")

    def command(self) -> list[str]:
        where = ["--host", "127.0.0.1", "--port", str(self.port), "--alias", NAME, "--api-key", KEY, "--offline"]
        size = ["--ctx-size", str(SLOTS * self._context), "--parallel", str(SLOTS), "--threads", "1"]
        return [str(program(SERVER)), "--model", str(self._model), *where, *size]
