"""`make bench-engine`: the engine against transformers' own ways, as ratios of one run on one machine.

Prints one table a model: tokens a second at 1, 8, 32 and 128 answers at once, and how many times longer the others
take, by the clock and of the processor (which a busy machine blurs less); then what a reader feels: the time to the
first token against a bare forward, the gaps between tokens while a long prompt is read in, the lag of the event loop.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import itertools
import logging
import os
import random
import statistics
import time
from collections.abc import Awaitable, Iterable
from typing import Any

THREADS = max(1, len(os.sched_getaffinity(0)) - 1)
os.environ["OMP_NUM_THREADS"] = str(THREADS)  # before torch: transformers' continuous batching has a thread of its own


import torch  # noqa: E402

from app.process.tune_interpreter import tune_interpreter  # noqa: E402
from models.checkpoints.loading import Checkpoint, load_checkpoint  # noqa: E402
from models.engine import EngineOptions, TorchEngine  # noqa: E402
from models.interface.generation import Delta, Job, Sampling  # noqa: E402
from tests.benchmarks import adapters  # noqa: E402
from tests.benchmarks.transformers_ways import ContinuousBatching, StaticGenerate  # noqa: E402
from tests.unit.models import tiny  # noqa: E402

PROMPT = 64
SHAPES = {
    "small": {
        "hidden_size": 128,
        "intermediate_size": 384,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
    },
    "larger": {
        "hidden_size": 512,
        "intermediate_size": 1408,
        "num_hidden_layers": 8,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 64,
    },
}


def checkpoint(name: str) -> Checkpoint:
    if name in SHAPES:
        return tiny.checkpoint("llama", max_position_embeddings=4096, **SHAPES[name])
    return dataclasses.replace(load_checkpoint(name), eos=frozenset())


Spent = tuple[float, float]  # seconds by the clock, and of the processor


async def timed(work: Awaitable[Any]) -> Spent:
    begun, processor = time.perf_counter(), time.process_time()
    await work
    return time.perf_counter() - begun, time.process_time() - processor


def middle(spent: list[Spent]) -> Spent:
    wall, processor = zip(*spent, strict=True)
    return statistics.median(wall), statistics.median(processor)


def ratio(other: Spent, mine: Spent) -> str:
    return f"{other[0] / mine[0]:>13.2f}x{other[1] / mine[1]:>9.2f}x"


class Bench:
    def __init__(self, made: Checkpoint, new_tokens: int, seed: int = 1) -> None:
        self.checkpoint = made
        self.new_tokens = new_tokens
        self._chance = random.Random(seed)
        self._vocabulary = made.model.config.vocab_size

    def prompts(self, count: int, length: int = PROMPT) -> list[tuple[int, ...]]:
        """Never the same twice, so that no prefix is found again."""
        return [tuple(self._chance.randrange(5, self._vocabulary) for _ in range(length)) for _ in range(count)]

    def jobs(self, prompts: Iterable[tuple[int, ...]], new_tokens: int, **sampling: Any) -> list[Job]:
        drawing = Sampling(**({"temperature": 0.0} | sampling))
        return [Job(str(n), prompt, new_tokens, sampling=drawing) for n, prompt in enumerate(prompts)]

    async def throughput(self, engine: TorchEngine, sizes: list[int], rounds: int) -> None:
        peers = [kind(self.checkpoint.model, self.new_tokens) for kind in (StaticGenerate, ContinuousBatching)]
        print(
            f"{'at once':>8}{'engine tok/s':>14}"
            + "".join(f"{'/ ' + peer.name:>24}" for peer in peers)
            + f"{'step ms':>10}{'outside forward':>17}"
        )
        for size in sizes:
            own, others = [], {peer.name: [] for peer in peers}
            for number in range(rounds + 1):  # the first is not counted
                engine.times.clear()
                own.append(await timed(self.run_all(engine, size)))
                for peer in peers:
                    others[peer.name].append(await timed(peer.run(self.prompts(size))))
                if not number:
                    own.clear()
                    others = {peer.name: [] for peer in peers}
            mine, times = middle(own), engine.times
            ratios = "".join(ratio(middle(others[peer.name]), mine) for peer in peers)
            outside = (times.total - times.forward) / times.total
            print(
                f"{size:>8}{size * self.new_tokens / mine[0]:>14.0f}{ratios}"
                f"{times.total / times.steps * 1e3:>10.2f}{outside:>16.1%}"
            )

    async def run_all(self, engine: TorchEngine, size: int) -> float:
        return await self._all(engine, self.jobs(self.prompts(size), self.new_tokens))

    async def _all(self, engine: TorchEngine, jobs: list[Job]) -> float:
        begun = time.perf_counter()
        await asyncio.gather(*(self._read(stream) for stream in engine.submit(jobs)))
        return time.perf_counter() - begun

    async def _read(self, stream: Any) -> list[float]:
        return [time.perf_counter() async for event in stream if isinstance(event, Delta)]

    async def first_token(self, engine: TorchEngine, rounds: int = 15) -> None:
        bare = StaticGenerate(self.checkpoint.model, 1).model
        for length in (16, 128, 512):
            own, forward = [], []
            for prompt in self.prompts(rounds, length):
                begun = time.perf_counter()
                with torch.inference_mode():
                    bare(torch.tensor([prompt], device=bare.device), logits_to_keep=1).logits.argmax().item()
                forward.append(time.perf_counter() - begun)
                own.append(await self._all(engine, self.jobs([prompt], 1)))
            mine, least = statistics.median(own) * 1e3, statistics.median(forward) * 1e3
            print(
                f"first token of a lone prompt of {length}: {mine:.2f} ms, bare forward {least:.2f} ms "
                f"({mine / least - 1:+.0%}, {mine - least:+.2f} ms)"
            )

    async def stall(self, engine: TorchEngine, readers: int = 8, long: int = 2048) -> None:
        streams = engine.submit(self.jobs(self.prompts(readers), 400))
        reading = [asyncio.ensure_future(self._read(stream)) for stream in streams]
        await asyncio.sleep(0.5)
        lag = asyncio.ensure_future(self._lag())
        before, begun = engine.times.steps, time.perf_counter()
        await self._all(engine, self.jobs(self.prompts(1, long), 1))
        ended, steps = time.perf_counter(), engine.times.steps - before
        lag.cancel()
        for stream in streams:
            stream.cancel()
        gaps = []
        for seen in await asyncio.gather(*reading):
            gaps += [b - a for a, b in itertools.pairwise(seen) if a >= begun and b <= ended]
        step = (ended - begun) / max(1, steps)
        worst = statistics.quantiles(gaps, n=100)[98]
        print(
            f"while {long} tokens are read in ({steps} steps of {step * 1e3:.1f} ms): p99 gap between the tokens of "
            f"{readers} others {worst * 1e3:.1f} ms = {worst / step:.2f} steps; lag of the event loop {self.lags()}"
        )

    async def _lag(self) -> None:
        self._lags: list[float] = []
        while True:
            begun = time.perf_counter()
            await asyncio.sleep(0.001)
            self._lags.append(time.perf_counter() - begun - 0.001)

    def lags(self) -> str:
        found = statistics.quantiles(self._lags, n=100)
        return f"p50 {found[49] * 1e3:.2f} ms, p99 {found[98] * 1e3:.2f} ms"


async def measure(name: str, sizes: list[int], rounds: int, new_tokens: int) -> None:
    made = checkpoint(name)
    weights = sum(weight.numel() for weight in made.model.parameters())
    print(f"\n{name}: {weights / 1e6:.1f}M parameters, {made.model.dtype}, {made.model.device}, {THREADS} threads")
    bench = Bench(made, new_tokens)
    own = dataclasses.replace(made, model=StaticGenerate(made.model, 1).model)
    engine = TorchEngine(own, EngineOptions(max_running=128, threads=THREADS))
    await engine.start()
    await bench.throughput(engine, sizes, rounds)
    await bench.first_token(engine)
    if made.context_length >= 2100:
        await bench.stall(engine)
    await engine.stop()
    if name in SHAPES:
        await adapters.compare(made, THREADS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    names = ["demo", *SHAPES]
    parser.add_argument("models", nargs="*", default=names, help="of these, or a checkpoint: a folder or a name")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 8, 32, 128])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--new-tokens", type=int, default=48)
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    torch.set_num_threads(THREADS)
    tune_interpreter()  # as every worker does
    for name in arguments.models:
        asyncio.run(measure(name, arguments.sizes, arguments.rounds, arguments.new_tokens))
    os._exit(0)  # the managers of continuous batching keep their threads


if __name__ == "__main__":
    main()
