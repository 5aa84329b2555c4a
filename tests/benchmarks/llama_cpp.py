"""llama.cpp as a peer of the engine: `python -m tests.benchmarks.llama_cpp [--sizes 1 8 32 128]`.

The same Llama of random weights, 64 tokens of prompt and 64 new ones for each of N answers at once, one thread each, in
rounds that alternate. llama.cpp is [built for this processor](../llama_cpp_build.py).
It reads the weights from a GGUF file, and its `llama-batched-bench` is what is timed. Without a compiler, CMake or that
distribution it is skipped with a line.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # before torch

import torch

from app.process.tune_interpreter import tune_interpreter
from models.engine import EngineOptions, TorchEngine
from tests.benchmarks.engine import Bench, checkpoint, timed
from tests.llama_cpp_build import SkippedError, build
from tests.unit.models.gguf.tiny_gguf import contents

TOKENS = 64
DTYPES = {"BF16": torch.bfloat16, "F32": torch.float32}
PROGRAM = "llama-batched-bench"


def write_gguf(path: Path, model: Any, kind: str) -> None:
    """Without a tokenizer."""
    no_vocabulary = {"tokenizer.ggml.model": "no_vocab", "llama.vocab_size": model.config.vocab_size}
    contents("llama", model, no_vocabulary).write(path, quantized=kind)


def seconds_of(program: Path, weights: Path, sizes: Sequence[int]) -> dict[int, float]:
    """Seconds for all answers, by how many there are at once."""
    lengths = ("-npp", str(TOKENS), "-ntg", str(TOKENS), "-npl", ",".join(map(str, sizes)))
    command = [
        str(program),
        "-m",
        str(weights),
        "-c",
        "32768",
        "-b",
        "2048",
        "-ub",
        "512",
        "-t",
        "1",
        *lengths,
    ]
    found = subprocess.run([*command, "--output-format", "jsonl"], capture_output=True, text=True, check=True)
    rows = [json.loads(line) for line in found.stdout.splitlines() if line.startswith("{")]
    return {row["pl"]: row["t"] for row in rows}


async def measure(program: Path, name: str, sizes: Sequence[int], rounds: int) -> None:
    made = checkpoint("larger")
    made = dataclasses.replace(made, model=made.model.to(DTYPES[name]))
    with tempfile.TemporaryDirectory() as folder:
        weights = Path(folder) / "random.gguf"
        write_gguf(weights, made.model, name)
        engine = TorchEngine(made, EngineOptions(max_running=max(sizes), threads=1))
        await engine.start()
        bench = Bench(made, TOKENS)
        own: dict[int, list[float]] = {size: [] for size in sizes}
        theirs: dict[int, list[float]] = {size: [] for size in sizes}
        for number in range(rounds + 1):  # the first is not counted
            for size in sizes:
                spent = await timed(bench.run_all(engine, size))
                own[size] += [spent[0]] if number else []
            for size, spent_there in (await asyncio.to_thread(seconds_of, program, weights, sizes)).items():
                theirs[size] += [spent_there] if number else []
        await engine.stop()
    for size in sizes:
        mine, other = statistics.median(own[size]), statistics.median(theirs[size])
        print(f"| {name} | {size} | {other:.2f} | {mine:.2f} | {other / mine:.2f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.llama_cpp", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 8, 32, 128])
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    try:
        program = build(PROGRAM)
    except SkippedError as error:
        print(f"llama.cpp is skipped: {error}")
        return
    torch.set_num_threads(1)
    tune_interpreter()  # as every worker does
    print(f"25M parameters, {TOKENS} tokens of prompt and {TOKENS} new ones each, one thread; whole time in s")
    print("| weights | at once | llama.cpp | the engine | times as fast |\n|---|---|---|---|---|")
    for name in DTYPES:
        asyncio.run(measure(program, name, arguments.sizes, arguments.rounds))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
