"""What speculation saves and gains, against the same engine without it, side by side in one run.

    python -m tests.benchmarks.speculation

Two workloads of the demo model: `chats`, its own short answers, and `quotes`, answers that go on beyond their end and
so repeat earlier text, as summaries and edits of a text do. `--draft` takes a model that guesses beside the lookup;
`demo` is the model itself, whose guesses are always right and cost as much as they save.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import logging
import statistics
import time

import torch

from models.checkpoints.loading import Checkpoint, load_checkpoint
from models.engine import EngineOptions, TorchEngine
from models.engine.speculation.drafting import SpeculationMode
from models.interface.generation import Delta, Job, Sampling
from models.prompts.builder import PromptBuilder

CUSTOMERS = (
    "Hi, I am Nina. Where is my order 4711?",
    "My parcel 99213 has not come yet.",
    "I want to return order 55123, what do I do?",
    "Please send order 31337 to my new address.",
    "I am Bob. Can I still cancel order 80154?",
)
WAITING = 3  # times as many answers as run at once: a place that is free early is taken by the next
HISTORY = (("Hello, I am Ada and my order is 70442.", "Hello Ada, I have noted your order 70442."),)


class Bench:
    def __init__(self, checkpoint: Checkpoint, new_tokens: int, temperature: float) -> None:
        self._prompts = PromptBuilder(checkpoint, 10)
        self._new_tokens = new_tokens
        self._temperature = temperature

    def jobs(self, rows: int, seed: int) -> list[Job]:
        return [
            Job(
                str(row),
                self._prompts.build("", HISTORY, CUSTOMERS[(row + seed) % len(CUSTOMERS)]).ids,
                self._new_tokens,
                sampling=Sampling(self._temperature, seed=seed * 1000 + row),
            )
            for row in range(WAITING * rows)
        ]

    async def generated(self, engine: TorchEngine, jobs: list[Job]) -> list[list[int]]:
        async def read(stream) -> list[int]:
            return [token async for event in stream if isinstance(event, Delta) for token in event.tokens]

        return list(await asyncio.gather(*map(read, engine.submit(jobs))))

    async def compare(self, plain: TorchEngine, guessing: TorchEngine, rows: int, rounds: int) -> None:
        seconds: dict[TorchEngine, list[float]] = {plain: [], guessing: []}
        steps = {plain: 0, guessing: 0}
        tokens = 0
        for number in range(rounds + 2):  # the first two are not counted: what guessing is worth is learnt in them
            jobs = self.jobs(rows, number)
            answers = []
            for engine in (plain, guessing) if number % 2 else (guessing, plain):
                engine.times.clear()
                begun = time.perf_counter()
                answers.append(await self.generated(engine, jobs))
                if number >= 2:
                    seconds[engine].append(time.perf_counter() - begun)
                    steps[engine] += engine.times.steps
            assert answers[0] == answers[1], "speculation changed an answer"
            tokens += sum(map(len, answers[0])) if number >= 2 else 0
        ratio = statistics.median(a / b for a, b in zip(seconds[plain], seconds[guessing], strict=True))
        speculation = guessing.speculation
        print(
            f"{rows:>8}{tokens / sum(seconds[plain]):>12.0f}{tokens / sum(seconds[guessing]):>12.0f}{ratio:>9.2f}x"
            f"{steps[plain]:>9}{steps[guessing]:>10}{1 - steps[guessing] / steps[plain]:>8.0%}"
            f"{speculation.guessed:>9}{speculation.right / max(1, speculation.guessed):>8.0%}"
        )
        speculation.guessed = speculation.right = 0


async def measure(arguments: argparse.Namespace, temperature: float) -> None:
    for workload, new_tokens in (("chats", 80), ("quotes", 160)):
        loaded = [load_checkpoint("demo") for _ in range(2)]
        if workload == "quotes":
            loaded = [dataclasses.replace(checkpoint, eos=frozenset()) for checkpoint in loaded]
        draft = load_checkpoint(arguments.draft) if arguments.draft else None
        print(f"\n{workload}, temperature {temperature}")
        print(
            f"{'at once':>8}{'plain tok/s':>12}{'guessing':>12}{'ratio':>10}{'steps':>9}{'guessing':>10}{'saved':>8}"
            f"{'guessed':>9}{'right':>8}"
        )
        for rows in arguments.sizes:
            options = EngineOptions(max_running=rows, threads=1)
            plain = TorchEngine(loaded[0], options)
            guessing = TorchEngine(
                loaded[1], dataclasses.replace(options, speculation=SpeculationMode.AUTO, draft=draft)
            )
            await asyncio.gather(plain.start(), guessing.start())
            await Bench(loaded[0], new_tokens, temperature).compare(plain, guessing, rows, arguments.rounds)
            await plain.stop()
            await guessing.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--draft", default="", help="a model that guesses: a folder, a name, or demo")
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.0])
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    for temperature in arguments.temperatures:
        asyncio.run(measure(arguments, temperature))


if __name__ == "__main__":
    main()
