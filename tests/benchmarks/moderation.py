"""What moderation costs, and what it refuses wrongly: `python -m tests.benchmarks.moderation`.

cost: the demo model on a whole worker, one request after the other, by four policies in turns. How much later do the
first token and the end of the answer come?
refusals: the questions and answers of the demo's held-out dialogues, judged without a worker. Those that were blocked
are printed, because some of them are attacks.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import AsyncExitStack
from pathlib import Path

from app.features.guard.judges.judges import Judges
from app.features.guard.turns import Asker
from app.kafka.topics import create_topics
from app.local.kafka import KafkaCluster
from app.local.milvus import MilvusNode
from app.local.ports import free_port
from app.policy.guard_rules import Action, GuardRules
from app.settings import Settings
from models.embedder import load_embedder
from tests.benchmarks.routes import report, run
from tests.benchmarks.stats import quantile
from tests.demo_model.dialogues import held_out
from tests.faults.worker_process import WorkerProcess
from tests.integration.worker.client import Client

POLICIES = {
    "without": "",
    "prompts": '[guard]\nprompt = { profanity = "block", injection = "block" }\n',
    "answers": '[guard]\nanswer = { profanity = "block" }\n',
    "both": '[guard]\nprompt = { profanity = "block", injection = "block" }\nanswer = { profanity = "block" }\n',
}
QUESTIONS = ("What are your opening hours?", "Do you sell kettles?", "Can I return a lamp?", "How long is shipping?")
_LOADED_S = 12.0
"""A worker reads the file every second, and loads the judges."""


async def cost(settings: Settings, rounds: int, requests: int) -> None:
    assert settings.policy is not None
    firsts, ends = defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
    async with Client(settings) as client:
        for _ in range(rounds):
            for name, text in POLICIES.items():
                settings.policy.write_text(text)
                await asyncio.sleep(_LOADED_S)
                for number in range(requests):
                    user = client.user()
                    began = time.monotonic()
                    question = f"Hi, I am customer {number}. {QUESTIONS[number % len(QUESTIONS)]}"
                    request_id = await client.ask(user, question, temperature=0, max_tokens=60)
                    await client.begun(user, request_id)
                    firsts[name].append(time.monotonic() - began)
                    await client.answer(user, request_id)
                    ends[name].append(time.monotonic() - began)
    report(f"cost: {rounds} rounds of {requests} requests\n")
    report("| judged | first token p50 ms | p99 ms | end p50 ms | p99 ms |\n|---|---|---|---|---|")
    for name in POLICIES:
        found = [1000 * quantile(values[name], share) for values in (firsts, ends) for share in (0.5, 0.99)]
        report(f"| {name} | " + " | ".join(f"{one:.0f}" for one in found) + " |")


async def refusals(count: int) -> None:
    embedder = load_embedder("minilm")
    actions: dict[str, Action] = {"profanity": "block", "injection": "block"}
    judges = Judges(GuardRules(prompt=actions), embedder)
    turns = [turn for dialogue in held_out(7, count) for turn in dialogue.turns]
    kinds = (
        ("questions", sorted({turn.user for turn in turns}), frozenset(actions)),
        ("answers", sorted({turn.answer for turn in turns}), frozenset({"profanity"})),
    )
    report(f"\nrefusals: {count} held-out dialogues\n")
    for name, texts, categories in kinds:
        began = time.monotonic()
        found = {text: await judges.categories_of([text], categories, Asker("a user")) for text in texts}
        blocked = {text: names for text, names in found.items() if names}
        spent = 1000 * (time.monotonic() - began) / len(texts)
        report(f"{name}: {len(blocked)} of {len(texts)} blocked, {spent:.1f} ms each")
        for text, names in blocked.items():
            report(f"  {', '.join(sorted(names))}: {text}")
    await asyncio.to_thread(embedder.close)


async def main(rounds: int, requests: int, dialogues: int, folder: Path) -> None:
    cluster = KafkaCluster(folder / "kafka", 1)
    await asyncio.to_thread(cluster.start)
    async with AsyncExitStack() as ending:
        ending.callback(cluster.kill)
        node = MilvusNode(folder / "milvus", free_port())
        await asyncio.to_thread(node.start)
        ending.callback(node.kill)
        policy = folder / "policy.toml"
        policy.write_text("")
        settings = Settings(
            _env_file=None,
            broker=cluster.broker_setting,
            milvus_uri=node.uri,
            topic_prefix="guard-",
            app_id="guard-bench",
            data_dir=folder / "data",
            model="demo",
            embedder="minilm",
            partitions=4,
            policy=policy,
        )
        await create_topics(settings)
        worker = WorkerProcess(settings, folder / "worker.log").start()
        try:
            await asyncio.to_thread(worker.wait_owning, settings.partitions)
            await run(settings, 2, 5, ["Hello"])  # warm
            await cost(settings, rounds, requests)
        finally:
            worker.stop()
    await refusals(dialogues)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.moderation", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="of all policies")
    parser.add_argument("--requests", type=int, default=60, help="by each policy, in each round")
    parser.add_argument("--dialogues", type=int, default=500, help="held-out dialogues of the demo")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="parley-moderation-", ignore_cleanup_errors=True) as place:
        sys.exit(asyncio.run(main(options.rounds, options.requests, options.dialogues, Path(place))))
