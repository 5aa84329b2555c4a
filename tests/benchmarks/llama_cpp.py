"""llama.cpp as a peer of the engine: `python -m tests.benchmarks.llama_cpp [--sizes 1 8 32 128]`.

The same Llama of random weights, 64 tokens of prompt and 64 new ones for each of N answers at once, one thread each, in
rounds that alternate. llama.cpp is built for this processor from the sources in llama-cpp-python's source distribution.
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
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # before torch

import torch

from app.tune_interpreter import tune_interpreter
from models.engine import EngineOptions, TorchEngine
from tests.benchmarks.engine import Bench, checkpoint, timed
from tests.benchmarks.processes import ROOT
from tests.benchmarks.progress import report

RELEASE = "llama-cpp-python==0.3.36"
FOLDER = ROOT / "build" / "llama.cpp"
TOKENS = 64
DTYPES = {"bf16": torch.bfloat16, "f32": torch.float32}
_OPTIONS = (
    "-DGGML_NATIVE=ON", "-DGGML_OPENMP=OFF", "-DLLAMA_CURL=OFF", "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF", "-DLLAMA_BUILD_SERVER=OFF", "-DBUILD_SHARED_LIBS=OFF", "-DCMAKE_BUILD_TYPE=Release",
)  # fmt: skip


class SkippedError(Exception):
    """Why llama.cpp is left out."""


def build() -> Path:
    """The folder of its sources; the program is in `build/bin` of it. Takes some minutes, once."""
    sources = FOLDER / "vendor" / "llama.cpp"
    if program(sources).exists():
        return sources
    if missing := [tool for tool in ("cmake", "c++") if shutil.which(tool) is None]:
        raise SkippedError(f"not installed: {', '.join(missing)}")
    report(f"building llama.cpp from {RELEASE}: some minutes")
    with tempfile.TemporaryDirectory() as folder:
        _run(sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", "-d", folder, RELEASE)
        with tarfile.open(next(Path(folder).glob("*.tar.gz"))) as archive:
            archive.extractall(folder, filter="data")
        shutil.rmtree(FOLDER, ignore_errors=True)
        shutil.move(next(path for path in Path(folder).iterdir() if path.is_dir()), FOLDER)
    _run("cmake", "-S", str(sources), "-B", str(sources / "build"), *_OPTIONS)
    _run("cmake", "--build", str(sources / "build"), "--target", "llama-batched-bench", "-j2")
    return sources


def program(sources: Path) -> Path:
    return sources / "build" / "bin" / "llama-batched-bench"


def _run(*command: str) -> None:
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    if found.returncode:
        last = (found.stderr or found.stdout).strip().splitlines()[-1:]
        raise SkippedError(f"`{' '.join(command[:4])} ...` failed: {' '.join(last)[:200]}")


def write_gguf(sources: Path, path: Path, model: Any, dtype: torch.dtype) -> None:
    """The weights of a Llama of transformers, without a tokenizer. Rotary halves stay: the time is the same."""
    sys.path.insert(0, str(sources / "gguf-py"))
    import gguf  # type: ignore[import-not-found]  # noqa: PLC0415 - comes with the sources

    config = model.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("no_vocab")
    kind = gguf.GGMLQuantizationType.BF16 if dtype is torch.bfloat16 else gguf.GGMLQuantizationType.F32
    for name, weight in model.state_dict().items():
        values = weight.detach().float().contiguous().numpy()
        if values.ndim == 1:
            writer.add_tensor(_gguf_name(name), values)
        else:
            writer.add_tensor(_gguf_name(name), gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


_PARTS = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
}  # fmt: skip
_WHOLE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def _gguf_name(name: str) -> str:
    stem = name.removesuffix(".weight")
    if stem in _WHOLE:
        return f"{_WHOLE[stem]}.weight"
    _, _, layer, part = stem.split(".", 3)
    return f"blk.{layer}.{_PARTS[part]}.weight"


def seconds_of(sources: Path, weights: Path, sizes: Sequence[int]) -> dict[int, float]:
    """Seconds for all answers, by how many there are at once."""
    lengths = ("-npp", str(TOKENS), "-ntg", str(TOKENS), "-npl", ",".join(map(str, sizes)))
    command = [
        str(program(sources)),
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


async def measure(sources: Path, name: str, sizes: Sequence[int], rounds: int) -> None:
    made = checkpoint("larger")
    made = dataclasses.replace(made, model=made.model.to(DTYPES[name]))
    with tempfile.TemporaryDirectory() as folder:
        weights = Path(folder) / "random.gguf"
        write_gguf(sources, weights, made.model, DTYPES[name])
        engine = TorchEngine(made, EngineOptions(max_running=max(sizes), threads=1))
        await engine.start()
        bench = Bench(made, TOKENS)
        own: dict[int, list[float]] = {size: [] for size in sizes}
        theirs: dict[int, list[float]] = {size: [] for size in sizes}
        for number in range(rounds + 1):  # the first is not counted
            for size in sizes:
                spent = await timed(bench.run_all(engine, size))
                own[size] += [spent[0]] if number else []
            for size, spent_there in (await asyncio.to_thread(seconds_of, sources, weights, sizes)).items():
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
        sources = build()
    except SkippedError as error:
        print(f"llama.cpp is skipped: {error}")
        return
    torch.set_num_threads(1)
    tune_interpreter()  # as every worker does
    print(f"25M parameters, {TOKENS} tokens of prompt and {TOKENS} new ones each, one thread; whole time in s")
    print("| weights | at once | llama.cpp | the engine | times as fast |\n|---|---|---|---|---|")
    for name in DTYPES:
        asyncio.run(measure(sources, name, arguments.sizes, arguments.rounds))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
