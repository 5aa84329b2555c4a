"""Two desks that decide about each call at once: `python -m tests.faults.races --calls 1000 --kills 4`.

Each desk has a reader and a producer of its own, and edits the arguments in its own way as soon as it reads of a call.
The decision that Kafka has first must count, whichever worker reads it: one call is made, with its arguments, and the
audit, the topic `waits` and the turn say the same.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from app.kafka.topics import create_topics
from app.local.kafka import KafkaCluster
from app.policy.tools import ApproveRules
from app.settings import Settings
from app.wire.codec import decode
from app.wire.tool_records import ToolCallRecord
from app.wire.waits import WaitRecord
from tests.faults.desks import DESK, decisions_in, wrong_approvals
from tests.faults.load import TOOLS, Load
from tests.faults.records import Fetched, read_topic, turn_of
from tests.faults.tool_programs import Planned, Programs, _result
from tests.faults.watch import Watch
from tests.faults.worker_process import WorkerProcess

RULES = ApproveRules(by=DESK, within_s=3600.0)
_POLICY = f'[waits]\n[tools.look_up]\napprove = {{ by = "{DESK}", within_s = 3600 }}\n'
_USERS = 50
_PATIENCE_S = 300.0


class Racer(Programs):
    """Edits each call, with arguments that have its name."""

    reads, writes = "waits", "controls"
    name: ClassVar[str]

    def planned(self, record: Fetched) -> Iterator[tuple[str, Planned]]:
        state = None if record.value is None else decode(WaitRecord, record.value)
        for wait in () if state is None else state.waits:
            if state is not None and wait.kind == "approval":
                said = {"type": "decide", "user_id": state.user_id, "request_id": state.request_id}
                arguments = json.dumps({"word": f"{wait.wait_id} of {self.name}"})
                said |= {"wait_id": wait.wait_id, "decision": "edited", "arguments": arguments}
                yield state.user_id, Planned(0.0, json.dumps({**said, "by": f"{DESK}/{self.name}"}).encode())


class Left(Racer):
    name = "left"


class Right(Racer):
    name = "right"


class EchoPrograms(Programs):
    """The result of each call is its arguments."""

    reads, writes = "tool-calls", "tool-results"

    def planned(self, record: Fetched) -> Iterator[tuple[str, Planned]]:
        call = decode(ToolCallRecord, record.value, record.headers)
        yield call.user_id, Planned(0.0, _result(call, call.arguments))


@dataclass
class Raced:
    calls: int = 0
    won: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def question(number: int, user: str) -> dict[str, object]:
    """An answer of one token and one call."""
    said = {"prompt": f"question {number} of {user}", "max_tokens": 1, "conversation_id": f"c{number}"}
    return {**said, "tools": TOOLS, "tool_mode": "kafka", "tool_timeout_ms": 3_600_000}


async def race(settings: Settings, folder: Path, *, calls: int, kills: int = 0, per_s: float = 25.0) -> Raced:
    folder.mkdir(parents=True, exist_ok=True)
    policy = folder / "policy.toml"
    policy.write_text(_POLICY)
    own = settings.model_copy(update={"policy": policy, "data_dir": folder / "data"})
    load = Load(own, per_s=per_s, users=_USERS, ask=question)
    load.most = calls
    async with Watch(own) as watch, Left(own), Right(own), EchoPrograms(own):
        with WorkerProcess(own, folder / "worker.log") as worker:
            await asyncio.to_thread(worker.wait_owning, own.partitions)
            async with load, asyncio.timeout(_PATIENCE_S + calls / 2):
                for number in range(1, kills + 1):
                    while len(watch.ended) < calls * number / (kills + 1):
                        await asyncio.sleep(0.05)
                    worker.kill()
                    await asyncio.to_thread(worker.start().wait_joined)
                while len(watch.ended) < calls:
                    await asyncio.sleep(0.05)
            await asyncio.sleep(2.0)
    return await _judged(own, calls)


async def _judged(settings: Settings, calls: int) -> Raced:
    names = ("audit", "controls", "tool-calls", "turns", "waits")
    audit, controls, made, turns, waits = [await read_topic(settings, name) for name in names]
    ended = {(one.user_id, one.request_id): str(one.finish_reason) for one in map(turn_of, turns)}
    first = {call: ones[0][1] for call, ones in decisions_in(controls).items()}
    raced = Raced(len(made), Counter(one["by"] for one in first.values()))
    raced.wrong += wrong_approvals(audit, controls, made, ended, RULES)
    raced.wrong += [f"{call} was decided once" for call, ones in decisions_in(controls).items() if len(ones) < 2]
    count = Counter(decode(ToolCallRecord, one.value, one.headers).tool_call_id for one in made)
    raced.wrong += [f"{call} was made {times} times" for call, times in count.items() if times > 1]
    if not len(made) == len(first) == len(turns) == calls:
        raced.wrong.append(f"{calls} asked, {len(first)} decided, {len(made)} made, {len(turns)} turns")
    for turn in map(turn_of, turns):
        raced.wrong += [
            f"the turn of {turn.request_id} has {call.arguments}"
            for call in turn.tool_calls or ()
            if call.arguments != first[call.id]["arguments"]
        ]
    for record in waits:
        state = None if record.value is None else decode(WaitRecord, record.value)
        for one in () if state is None else state.decided:
            if (one.decision, one.by) != ("edited", first[one.wait_id]["by"]):
                raced.wrong.append(f"`waits` has {one} of {first[one.wait_id]}")
    return raced


async def _run(options: argparse.Namespace, folder: Path) -> int:
    cluster = KafkaCluster(folder / "kafka")
    await asyncio.to_thread(cluster.start)
    began = time.monotonic()
    try:
        values = {"engine": "paced", "paced_tokens_per_s": 1000.0, "embedder": "none", "partitions": 4}
        settings = Settings(_env_file=None, broker=cluster.broker_setting, **values)  # type: ignore[arg-type]
        await create_topics(settings)
        raced = await race(settings, folder / "race", calls=options.calls, kills=options.kills)
    finally:
        cluster.kill()
    print(f"{raced.calls} calls, first: {dict(raced.won)}, {options.kills} kills, {time.monotonic() - began:.0f} s")
    print("\n".join(raced.wrong[:20]) or "nothing wrong")
    return 1 if raced.wrong else 0


def main() -> int:
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    parser = argparse.ArgumentParser(prog="python -m tests.faults.races", description=__doc__)
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=4)
    with tempfile.TemporaryDirectory(prefix="parley-races-", ignore_cleanup_errors=True) as folder:
        return asyncio.run(_run(parser.parse_args(), Path(folder)))


if __name__ == "__main__":
    sys.exit(main())
