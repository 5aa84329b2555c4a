"""What readers notice when a worker joins, leaves, is killed, or all are restarted one after the other."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import msgspec

from app.kafka.topics import create_topics
from tests.benchmarks.fleet.workers import settings_of, start, wait_divided
from tests.benchmarks.kafka_client import KafkaClient
from tests.benchmarks.load import Load, Reply
from tests.benchmarks.progress import report
from tests.benchmarks.result import Result
from tests.benchmarks.stats import quantile
from tests.faults.worker_process import WorkerProcess

PARTITIONS = 12
TOKENS = 100
LOAD = Load(seconds=100, rate=12, users=300, max_tokens=TOKENS)
_BEFORE_S = 6.0
_AFTER_S = 14.0
COLUMNS = [
    "change", "answers under way", "their longest pause p50 ms", "p99 ms", "max ms", "asked in the 10 s after it",
    "their first p50 ms", "p99 ms", "torn or lost",
]  # fmt: skip


class Change(msgspec.Struct, frozen=True):
    name: str
    began: float
    ended: float


async def run(broker: str, folder: Path, *, short: bool) -> Result:
    """Three workers with a standby of each partition, and a fourth that joins them and is killed."""
    settings = settings_of(broker, folder, "changes", PARTITIONS, standby_replicas=1, paced_tokens_per_s=50.0)
    await create_topics(settings)
    with ExitStack() as running:
        fleet = start(running, settings, folder, 3)
        await asyncio.to_thread(wait_divided, fleet, PARTITIONS)
        async with KafkaClient(
            broker.removeprefix("kafka://"), settings.topic("requests"), settings.topic("tokens")
        ) as client:
            loading = asyncio.create_task(client.run(LOAD if not short else msgspec.structs.replace(LOAD, seconds=30)))
            await asyncio.sleep(_BEFORE_S)
            fourth = WorkerProcess(
                settings.model_copy(update={"data_dir": settings.data_dir / "3"}), folder / "changes-3.log"
            )
            running.callback(fourth.kill)
            acts = _acts(fourth, fleet)
            changes = [await _observe(name, act) for name, act in (acts[:2] if short else acts)]
            replies = await loading
    result = Result("changes", f"{LOAD.rate:g} requests/s of {TOKENS} tokens, {PARTITIONS} partitions", COLUMNS)
    result.rows = [_row(change, replies) for change in changes]
    result.notes.append(
        f"{len(replies)} requests in all; {sum(map(_is_broken, replies))} torn or lost. Without a change, the tokens "
        "of an answer are 20 ms apart."
    )
    return result


def _acts(fourth: WorkerProcess, fleet: Sequence[WorkerProcess]) -> list[tuple[str, Callable[[], object]]]:
    def join() -> None:
        fourth.start()
        fourth.wait_joined()

    def restart_all() -> None:
        for worker in fleet:
            worker.stop()
            worker.start()
            worker.wait_joined()

    def come_back() -> None:
        fleet[0].start()
        fleet[0].wait_joined()

    return [
        ("a fourth joins", join),
        ("the fourth is killed", fourth.kill),
        ("one leaves (SIGTERM)", fleet[0].stop),
        ("it comes back", come_back),
        ("all three are restarted in turn", restart_all),
    ]


async def _observe(name: str, act: Callable[[], object]) -> Change:
    report(name)
    began = time.perf_counter()
    await asyncio.to_thread(act)
    ended = time.perf_counter()
    await asyncio.sleep(_AFTER_S)
    return Change(name, began, ended)


def _row(change: Change, replies: Sequence[Reply]) -> list[str | float | int]:
    end = change.ended + _AFTER_S - 4
    under_way = [one for one in replies if one.events and one.due < end and one.events[-1] > change.began]
    pauses = [_longest_pause(one, change.began, end) for one in under_way]
    asked = [one for one in replies if change.began <= one.due < change.began + 10]
    firsts = [math.inf if one.first is None else one.first for one in asked]
    broken = sum(_is_broken(one) for one in {id(one): one for one in [*under_way, *asked]}.values())
    return [
        change.name, len(under_way), quantile(pauses, 0.5) * 1e3, quantile(pauses, 0.99) * 1e3,
        max(pauses, default=math.nan) * 1e3, len(asked), quantile(firsts, 0.5) * 1e3, quantile(firsts, 0.99) * 1e3,
        broken,
    ]  # fmt: skip


def _longest_pause(reply: Reply, began: float, end: float) -> float:
    return max((later - one for one, later in pairwise(reply.events) if later > began and one < end), default=0.0)


def _is_broken(reply: Reply) -> bool:
    return reply.failed or reply.end is None or reply.tokens != TOKENS
