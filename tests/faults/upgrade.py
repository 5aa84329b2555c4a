"""Workers of another version of the code, on the same topics and data: an upgrade, a rollback, and both at once.

    python -m tests.faults.upgrade REF [--seconds 8]

REF is a commit of this repository. Its workers and those of the checkout take turns, each killed while it answers, in
one data directory; then one of each runs side by side. When all are new, `[waits]` is switched on, and workers are
killed among answers that sleep. What the topics hold afterwards is judged as after faults.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app.kafka.topics import create_topics
from app.local.kafka import KafkaCluster
from app.settings import Settings
from tests.faults.load import Load, plain_question, tool_question
from tests.faults.tool_programs import ToolPrograms
from tests.faults.verdict import judge
from tests.faults.watch import Watch
from tests.faults.worker_process import ROOT, WorkerProcess

PARTITIONS = 4
SETTLE_S = 120.0


def question(number: int, user: str) -> dict[str, object]:
    """One in four calls tools over Kafka. A conversation has eight turns at most, and forgets none that waits."""
    asked = tool_question(number, user) if number % 4 == 1 else plain_question(number, user)
    return {**asked, "conversation_id": f"t{number // 256}"}


@contextmanager
def checked_out(ref: str, folder: Path) -> Iterator[Path]:
    tree = folder / "tree"
    subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(tree), ref], cwd=ROOT, check=True)
    try:
        yield tree
    finally:
        subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True)


def worker_of(code: Path, settings: Settings, log: Path) -> WorkerProcess:
    return WorkerProcess(settings, log, PYTHONPATH=f"{code}{os.pathsep}{code / 'deploy/packages/python'}")


async def take_turns(settings: Settings, versions: dict[str, Path], seconds: float, folder: Path) -> None:
    for number, name in enumerate(("old", "new", "old", "new")):
        print(f"a worker of the {name} version", flush=True)
        with worker_of(versions[name], settings, folder / f"{number}-{name}.log") as worker:
            await asyncio.to_thread(worker.wait_owning, PARTITIONS)
            await asyncio.sleep(seconds)


async def run_both(settings: Settings, versions: dict[str, Path], seconds: float, folder: Path) -> None:
    """One joins the other, which leaves again; its partitions, and what it was answering, change versions twice."""
    other = settings.model_copy(update={"data_dir": folder / "data-of-the-other"})
    print("one of each version", flush=True)
    with worker_of(versions["old"], settings, folder / "both-old.log") as old:
        await asyncio.to_thread(old.wait_owning, PARTITIONS)
        with worker_of(versions["new"], other, folder / "both-new.log") as new:
            await asyncio.to_thread(new.wait_joined)
            await asyncio.sleep(seconds)
            await asyncio.to_thread(old.stop)
            await asyncio.sleep(seconds)


async def sleep_through_kills(settings: Settings, seconds: float, folder: Path) -> None:
    """`[waits]` is on."""
    policy = folder / "policy.toml"
    policy.write_text("[waits]\npark_after_s = 0.2\n")
    own = settings.model_copy(update={"policy": policy})
    for number in range(2):
        print("a worker whose answers sleep", flush=True)
        with worker_of(ROOT, own, folder / f"sleeps-{number}.log") as worker:
            await asyncio.to_thread(worker.wait_owning, PARTITIONS)
            await asyncio.sleep(seconds)


async def main(ref: str, seconds: float, folder: Path) -> int:
    kafka = KafkaCluster(folder / "kafka")
    await asyncio.to_thread(kafka.start)
    try:
        settings = Settings(
            _env_file=None,
            broker=kafka.broker_setting,
            data_dir=folder / "data",
            partitions=PARTITIONS,
            engine="paced",
            embedder="none",
            paced_tokens_per_s=20.0,
        )
        await create_topics(settings)
        with checked_out(ref, folder) as tree:
            versions = {"old": tree, "new": ROOT}
            async with Watch(settings) as watch, ToolPrograms(settings):
                async with Load(settings, per_s=5.0, users=32, ask=question) as load:
                    await take_turns(settings, versions, seconds, folder)
                    await run_both(settings, versions, seconds, folder)
                    await sleep_through_kills(settings, seconds, folder)
                last_settings = settings.model_copy(update={"policy": folder / "policy.toml"})
                with worker_of(ROOT, last_settings, folder / "last.log") as last:
                    await asyncio.to_thread(last.wait_owning, PARTITIONS)
                    async with asyncio.timeout(SETTLE_S):
                        while load.asked - watch.ended:
                            await asyncio.sleep(0.1)
                    await asyncio.sleep(2.0)
        verdict = await judge(settings, audited=False)  # the older version may not write it
        print(verdict.line())
        if not verdict.sleeps:
            print("nothing has slept")
            return 1
        return 0 if verdict.clean else 1
    finally:
        kafka.kill()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ref", metavar="REF")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each worker")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="parley-upgrade-", ignore_cleanup_errors=True) as name:
        sys.exit(asyncio.run(main(options.ref, options.seconds, Path(name))))
