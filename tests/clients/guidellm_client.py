import json
import subprocess
import sys
import tempfile
from pathlib import Path

from checks import check, expect, run

TOKENIZER = Path(__file__).parents[2] / "models" / "demo" / "checkpoint"


@check("benchmark with its defaults")
def benchmark() -> None:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        done = subprocess.run(
            [
                *("guidellm", "run", "--backend", f"kind=openai_http,target={sys.argv[1]}"),
                *("--profile", "kind=synchronous", "--constraint", "kind=max_requests,count=5"),
                *("--tokenizer", f"kind=huggingface_auto,model={TOKENIZER}"),
                *("--data", "kind=synthetic_text,prompt_tokens=40,output_tokens=20"),
                *("--output", f"kind=json,path={out}", "--disable-console-interactive"),
            ],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        expect(done.returncode == 0, (done.stdout + done.stderr)[-1500:])
        (found,) = json.loads(out.read_text())["benchmarks"]
        expect(len(found["requests"]["successful"]) >= 5, found["requests"])


run()
