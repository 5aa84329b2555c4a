"""A worker of a `.gguf` file, the format in which most people have a model on disk."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import torch

from app.local.kafka import KafkaCluster
from tests.faults.worker_process import WorkerProcess
from tests.integration.worker.client import Client
from tests.integration.worker.conftest import module_settings
from tests.unit.models.gguf import tiny_gguf

pytest.importorskip("gguf", reason="needs the extra `gguf`")

PROMPT = [7, 40, 90, 3, 250, 61, 7, 8, 9, 300, 12] * 6
TOKENS = 24


async def test_it_answers_as_the_model_that_was_written(kafka: KafkaCluster, tmp_path: Path) -> None:
    made = tiny_gguf.model("llama")
    path = tiny_gguf.contents("llama", made).write(tmp_path / "tiny.gguf")
    ids = torch.tensor([PROMPT])
    whole = made.generate(ids, max_new_tokens=TOKENS, do_sample=False, pad_token_id=4)[0]
    # Settings make topics in a loop of their own.
    settings = await asyncio.to_thread(module_settings, kafka, tmp_path, engine="torch", model=str(path), partitions=1)
    with WorkerProcess(settings, tmp_path / "worker.log", HF_HOME=str(tmp_path / "cache")) as worker:
        worker.wait_owning(1)
        async with Client(settings) as client:
            answer = await client.asked(
                "ann", None, prompt_token_ids=PROMPT, temperature=0, max_tokens=TOKENS, ignore_eos=True
            )
            (turn,) = await client.turns_of("ann", 1)
    assert list(answer.tokens) == whole[len(PROMPT) :].tolist()
    assert turn.model_version.startswith("tiny.gguf@")
