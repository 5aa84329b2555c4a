"""Private values on a whole worker: `python -m tests.faults.private_values --dialogues 200 --kills 50`.

Dialogues full of planted values run through a worker with `[guard] pii = "mask"` and an outside model that repeats
what it reads. Afterwards the values are looked for wherever they must not be. Then the worker is killed while
placeholders are half written, and each answer is compared with the one that an undisturbed worker gives.

Names of persons are found by a statistical model, so they are counted apart from what patterns and checksums find.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import sys
import tempfile
import urllib.request
from collections.abc import Iterable
from pathlib import Path

import click

from app.local.kafka import KafkaCluster
from app.local.milvus import MilvusNode
from app.local.ports import free_port
from app.private.value import PrivateValue
from app.search.milvus.connection import Milvus
from app.settings import Settings
from tests.faults.private_sentences import Sentences
from tests.faults.worker_process import WorkerProcess
from tests.integration.worker.client import Client
from tests.integration.worker.conftest import module_settings
from tests.unit.models.remote.outside import OutsideServer, outside_server_in_a_thread

POLICY = """
[models.outside]
engine = "openai"
urls = ["{url}"]
model = "served-name"
dialect = "vllm"
silence_s = 5

[cache]
ttl_s = 30

[recall]
budget_ms = 5000

[guard]
pii = "mask"
"""
AT_ONCE = 8
CUT_AT_ONCE = 5
"""Answers that one kill of the worker cuts."""


@click.command()
@click.option("--dialogues", default=200, show_default=True)
@click.option("--kills", default=50, show_default=True, help="Answers to cut while a placeholder is half written.")
def main(dialogues: int, kills: int) -> None:
    """Exit code 1 if a value that patterns find is somewhere it must not be, or an answer differs."""
    logging.getLogger("aiohttp.server").disabled = True  # the outside model is cut with each worker
    with tempfile.TemporaryDirectory(prefix="private-") as name, outside_server_in_a_thread() as outside:
        outside.echo = True
        sys.exit(0 if run(Path(name), outside, dialogues, kills) else 1)


def run(folder: Path, outside: OutsideServer, dialogues: int, kills: int) -> bool:
    policy = folder / "policy.toml"
    policy.write_text(POLICY.format(url=outside.url))
    kafka, milvus = KafkaCluster(folder / "kafka"), MilvusNode(folder / "milvus", free_port())
    worker: WorkerProcess | None = None
    try:
        kafka.start()
        milvus.start()
        places = {"embedder": "minilm", "milvus_uri": milvus.uri, "policy": policy, "traces": "console"}
        settings = module_settings(kafka, folder, **places, traces_sample=1.0, usage_window_s=1)
        worker = WorkerProcess(settings, folder / "worker.log").start()
        worker.wait_owning(settings.partitions)
        return asyncio.run(_run(settings, worker, outside, dialogues, kills))
    finally:
        if worker is not None:
            worker.kill()
        milvus.kill()
        kafka.kill()


async def _run(settings: Settings, worker: WorkerProcess, outside: OutsideServer, dialogues: int, kills: int) -> bool:
    async with Client(settings) as client:
        planted = await _talk(client, dialogues)
        leaks = await _leaks(client, worker, outside, planted)
        differing = await _cut(client, worker, outside, kills)
    click.echo(f"answers cut while a placeholder was half written: {kills}, different: {differing}")
    return not leaks and not differing


async def _talk(client: Client, dialogues: int) -> set[PrivateValue]:
    """Three turns a dialogue; the last one recalls the others. Returns the planted values."""
    planted: set[PrivateValue] = set()
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> None:
        sentences = Sentences(1000 + number)
        async with gate:
            user = client.user()
            for turn in range(3):
                text, labels = sentences.next()
                planted.update(labels)
                answer = await client.asked(user, f"{text} ", model="outside", recall=2 if turn == 2 else 0)
                if text not in answer.text:
                    raise AssertionError(f"the reader of {user} does not see the values: {answer.text!r}")

    await asyncio.gather(*(one(number) for number in range(dialogues)))
    return planted


async def _leaks(client: Client, worker: WorkerProcess, outside: OutsideServer, planted: set[PrivateValue]) -> int:
    """Print how many values each place has; returns the number of those that patterns find."""
    await asyncio.sleep(5.0)  # the index and the usage windows follow
    by_patterns = {one.value for one in planted if one.kind != "PERSON"}
    names = {one.value for one in planted if one.kind == "PERSON"}
    with urllib.request.urlopen(f"http://127.0.0.1:{worker.web_port}/metrics") as page:
        metrics = page.read().decode()
    places = {
        "prompts of the model": json.dumps(outside.bodies, ensure_ascii=False),
        "Milvus": "\n".join(await _rows(client.settings)),
        "log and traces": worker.log.read_text(),
        "metrics": metrics,
        **{topic: await _values(client, topic) for topic in ("audit", "usage", "dead-letters")},
    }
    found = 0
    click.echo(f"values planted: {len(by_patterns)} that patterns find, {len(names)} names")
    for place, text in places.items():
        leaked = _found(by_patterns, text)
        found += len(leaked)
        click.echo(f"{place:22} {len(text):9} characters: {len(leaked)} values, {len(_found(names, text))} names")
        for value in leaked[:3]:
            at = text.index(value)
            click.echo(f"    {text[max(0, at - 100) : at + 60]!r}")
    return found


def _found(values: Iterable[str], text: str) -> list[str]:
    return [value for value in values if value in text]


async def _values(client: Client, topic: str) -> str:
    return "\n".join((record.value or b"").decode() for record in await client.records(topic))


async def _rows(settings: Settings) -> list[str]:
    milvus = Milvus(settings.milvus_uri)
    try:
        found = await milvus.call(
            "query", settings.milvus_collection, filter='user_id != ""', output_fields=["text"], limit=16000
        )
    finally:
        await milvus.close()
    return [row["text"] for row in found]


async def _cut(client: Client, worker: WorkerProcess, outside: OutsideServer, kills: int) -> int:
    """Returns the number of answers that differ from what an undisturbed worker says."""
    outside.pause_s = 0.03
    chance, differing = random.Random(kills), 0
    for first in range(0, kills, CUT_AT_ONCE):
        asked = []
        for number in range(first, min(first + CUT_AT_ONCE, kills)):
            sentences, user = Sentences(5000 + number), client.user()
            prompt = " ".join(sentences.next()[0] for _ in range(3))
            asked.append((user, prompt, await client.ask(user, prompt, model="outside")))
        await asyncio.gather(*(client.begun(user, request, 2) for user, _, request in asked))
        await asyncio.sleep(chance.random() * 0.8)
        worker.kill()
        worker.start()
        for user, prompt, request in asked:
            answer = await client.answer(user, request)
            if answer.text != f"You said {prompt}. Again: {prompt}" or answer.end.finish_reason != "stop":
                differing += 1
                click.echo(f"{user}: {answer.end.finish_reason} {answer.text!r}")
        click.echo(f"  {first + len(asked)} answers cut")
    return differing


if __name__ == "__main__":
    main()
