import json
import subprocess
import sys
import tempfile
from pathlib import Path

from checks import check, expect, run

TOKENIZER = Path(__file__).parents[2] / "models" / "demo" / "checkpoint"


def bench(*more: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        command = [
            *("vllm", "bench", "serve", "--base-url", sys.argv[1], "--tokenizer", str(TOKENIZER)),
            *("--dataset-name", "random", "--random-input-len", "40", "--random-output-len", "20"),
            *("--num-prompts", "10", "--save-result", "--result-dir", folder, *more),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        expect(done.returncode == 0, (done.stdout + done.stderr)[-1500:])
        (found,) = (json.loads(path.read_text()) for path in Path(folder).glob("*.json"))
        expect((found["completed"], found["total_output_tokens"]) == (10, 200), found)


@check("bench serve with its defaults: completions, the first model of /v1/models")
def defaults() -> None:
    bench()


@check("bench serve with chat completions")
def chat() -> None:
    bench("--backend", "openai-chat", "--endpoint", "/v1/chat/completions", "--model", "demo", "--ignore-eos")


run()
