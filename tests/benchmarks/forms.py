"""The forms of a model's weights side by side: `python -m tests.benchmarks.forms MODEL [--text FILE]`.

Each round loads the model once in every form, in a process of its own, and lets the engine answer 1, 8 and 32 at once:
64 tokens of prompt, 16 new ones. The table has medians of the rounds: tokens a second as multiples of the first form,
by the clock and of the processor (which a busy machine blurs less), and the resident memory. The first round also
measures the mean negative log-likelihood of the first 2,048 tokens of a text, in pieces of 512.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import math
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import torch
from torch.nn.functional import cross_entropy

from models.checkpoints.loading import Checkpoint, load_checkpoint
from models.engine import EngineOptions, TorchEngine
from models.interface.generation import Job, Sampling
from models.weights.replacing import held_bytes
from tests.benchmarks.engine import timed
from tests.benchmarks.machine import machine
from tests.benchmarks.processes import ROOT
from tests.benchmarks.progress import report

FORMS: dict[str, dict[str, str]] = {
    "float32, plain": {"dtype": "float32", "products": "plain"},
    "float32, packed": {"dtype": "float32", "products": "packed"},
    "bfloat16, plain": {"dtype": "bfloat16", "products": "plain"},
    "bfloat16, packed": {"dtype": "bfloat16", "products": "packed"},
    "auto": {},
    "int8-vocabulary": {"quantize": "int8-vocabulary"},
    "int8": {"quantize": "int8"},
}
SIZES = (1, 8, 32)
PROMPT, NEW, READ, PIECE = 64, 16, 2048, 512
PAGES = 600


@torch.inference_mode()
def likelihood(made: Checkpoint, text: str) -> float:
    """The mean negative log-likelihood of a token, the first one of each piece after what begins a prompt."""
    begin = made.tokenizer("").input_ids or [min(made.eos, default=0)]
    ids = made.tokenizer(text, add_special_tokens=False).input_ids[:READ]
    total = count = 0.0
    for first in range(0, len(ids), PIECE):
        piece = torch.tensor([[*begin, *ids[first : first + PIECE]]])
        logits = made.model(piece, use_cache=False).logits[0, len(begin) - 1 : -1].float()
        total += cross_entropy(logits, piece[0, len(begin) :], reduction="sum").item()
        count += piece.shape[1] - len(begin)
    return total / count


async def speeds(made: Checkpoint, threads: int) -> dict[str, Any]:
    engine = TorchEngine(dataclasses.replace(made, eos=frozenset()), EngineOptions(threads=threads, pages=PAGES))
    await engine.start()
    chance = random.Random(1)
    found = {}

    async def answer(number: int) -> None:
        prompt = tuple(chance.randrange(5, 1000) for _ in range(PROMPT))
        (stream,) = engine.submit([Job(str(number), prompt, NEW, sampling=Sampling(0.0))])
        async for _ in stream:
            pass

    async def answers(count: int) -> None:
        await asyncio.gather(*(answer(number) for number in range(count)))

    await answers(2)
    for size in SIZES:
        found[size] = await timed(answers(size))
    await engine.stop()
    return {"spent": found, "threads": engine.threads}


def one(model: str, form: str, text: str, threads: int) -> dict[str, Any]:
    began = time.perf_counter()
    made = load_checkpoint(
        model,
        device="cpu",
        context_length=1024,
        may_be_shorter=True,
        threads=threads,
        by_transformers=False,
        **FORMS[form],
    )
    loaded = time.perf_counter() - began
    found = {"load_s": loaded, "version": made.model_version.partition("+")[2], "weights": held_bytes(made.model)}
    found["resident"] = psutil.Process().memory_info().rss
    if text:
        found["loss"] = likelihood(made, text)
    return found | asyncio.run(speeds(made, threads))


def measured(model: str, form: str, text: str, threads: int) -> dict[str, Any]:
    command = [sys.executable, "-m", __spec__.name, model, "--one", form, "--text", text, "--threads", str(threads)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def table(rounds: dict[str, list[dict[str, Any]]]) -> str:
    sizes = " | ".join(f"at {size}" for size in SIZES)
    lines = [
        f"| form | version | loss (perplexity) | {sizes} | {sizes}, processor | weights, MB | resident, MB | load, s |",
        "|---" * (6 + 2 * len(SIZES)) + "|",
    ]
    first = next(iter(rounds))
    base = rounds[first]
    for form, found in rounds.items():
        loss = found[0]["loss"]
        ratios = [
            f"{middle(base, size, kind) / middle(found, size, kind):.2f}" for kind in (0, 1) for size in map(str, SIZES)
        ]
        lines.append(
            f"| {form} | `{found[0]['version']}`, threads {found[0]['threads']} | {loss:.4f} ({math.exp(loss):.2f}) | "
            f"{' | '.join(ratios)} | {found[0]['weights'] / 1e6:.0f} | {found[0]['resident'] / 1e6:.0f} | "
            f"{statistics.median(one['load_s'] for one in found):.1f} |"
        )
    tokens = [f"{int(size) * NEW / middle(base, size, 0):.1f}" for size in map(str, SIZES)]
    return "\n".join([*lines, f"\n{first} writes {', '.join(tokens)} tokens/s"])


def middle(found: list[dict[str, Any]], size: str, kind: int) -> float:
    return statistics.median(one["spent"][size][kind] for one in found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--text", default=str(ROOT / "README.md"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--forms", nargs="+", choices=list(FORMS), default=list(FORMS))
    parser.add_argument("--one", choices=list(FORMS), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        text = Path(given.text).read_text(encoding="utf-8") if given.text else ""
        print(json.dumps(one(given.model, given.one, text, given.threads)))
        return
    rounds: dict[str, list[dict[str, Any]]] = {form: [] for form in given.forms}
    for number in range(given.rounds):
        for form, found in rounds.items():
            found.append(measured(given.model, form, "" if number else given.text, given.threads))
            report(f"round {number + 1}: {form}: {found[-1]}")
    print(json.dumps(machine()))
    print(table(rounds))


if __name__ == "__main__":
    main()
