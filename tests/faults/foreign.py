"""Foreign records through kills of workers: `python -m tests.faults.foreign --records 10000 --kills 20`.

Programs that know nothing of Parley write to a topic of theirs, without keys, and read another one. Beside the verdict
on requests, answers and turns, each of their records must have led to one request, and be answered once on their topic.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import random
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from app.foreign.source import source_of
from app.kafka.topics import create_topics
from app.local.kafka import KafkaCluster
from app.settings import Settings
from app.wire.codec import decode
from app.wire.turn import Turn
from tests.faults.arena import arena
from tests.faults.faults import Fault, KillInside, KillWorker
from tests.faults.load import Load
from tests.faults.records import read_topic
from tests.foreign_reader import read

ASKS, ANSWERS, WORDS = "asks-of-others", "answers-for-others", "words-for-others"
_POLICY = """
[[intake]]
topic = "{asks}"
fields = {{ request_id = "id", user_id = "from.user", prompt = "text", max_tokens = "length" }}

[[egress]]
topic = "{answers}"
intake = "{asks}"
on = ["done", "error"]
fields = {{ id = "request_id", to = "user_id", said = "answer", wrote = "source.wrote.at" }}

[[egress]]
topic = "{words}"
per = "token"
intake = "{asks}"
[egress.fields]
id = "request_id"
to = "user_id"
index = "index"
tokens = "tokens"
text = "text"
epoch = "epoch"
finish_reason = "finish_reason"
error = "error.code"
"""


class ForeignLoad(Load):
    """The same requests, as others write them."""

    async def _sent(self, user: str, request: Mapping[str, object], at_ms: int) -> asyncio.Future[object]:
        fields = {"id": request["request_id"], "from": {"user": user}, "text": request["prompt"]}
        value = json.dumps({**fields, "length": request["max_tokens"], "wrote": {"at": at_ms}}).encode()
        delivery: asyncio.Future[object] = await self._producer.send(
            self._settings.topic(ASKS), value, timestamp_ms=at_ms
        )
        return delivery


def ask(number: int, user: str) -> dict[str, object]:
    return {"prompt": f"question {number} of {user}", "max_tokens": 5}


def policy_of(settings: Settings) -> str:
    return _POLICY.format(asks=settings.topic(ASKS), answers=settings.topic(ANSWERS), words=settings.topic(WORDS))


async def wrong_foreign(settings: Settings) -> list[str]:
    """What is wrong between the topics of others and Parley's."""
    asked = await read_topic(settings, ASKS)
    made = Counter[tuple[int, int]]()
    for record in await read_topic(settings, "requests"):
        if (source := source_of(record.headers)) is not None:
            made[source.partition, source.offset] += 1
    wrong = [f"{at} has {made[at]} requests" for one in asked if made[at := (one.partition, one.offset)] != 1]
    turns = [decode(Turn, record.value, record.headers) for record in await read_topic(settings, "turns")]
    wanted = {(turn.user_id, turn.request_id): turn.answer for turn in turns}
    told, wrote = Counter[tuple[str, str]](), defaultdict[tuple[str, str], list[int]](list)
    for one in asked:
        fields = json.loads(one.value or b"")
        wrote[fields["from"]["user"], fields["id"]].append(fields["wrote"]["at"])
    for record in await read_topic(settings, ANSWERS):
        answer = json.loads(record.value or b"")
        key = (answer["to"], answer["id"])
        told[key] += 1
        is_right = wanted.get(key) == answer["said"] and answer["wrote"] in wrote[key]
        if record.key != answer["to"].encode() or not is_right:
            wrong.append(f"the answer to {key} is another one")
    words = [json.loads(record.value or b"") for record in await read_topic(settings, WORDS)]
    read_words = read({**one, "id": (one["to"], one["id"])} for one in words)
    for turn in turns:
        words_of = read_words.get((turn.user_id, turn.request_id))
        if words_of is None or words_of.gaps or (words_of.text, words_of.end) != (turn.answer, turn.finish_reason):
            wrong.append(f"the words for {(turn.user_id, turn.request_id)} are not its answer")
    return wrong + [f"{key} has {told[key]} answers" for key in wrote if told[key] != 1]


async def run(
    cluster: KafkaCluster, settings: Settings, folder: Path, *, records: int, kills: int, per_s: float, workers: int
) -> tuple[str, list[str]]:
    """A line with what was counted, and what was wrong. The kills are spread over the records."""
    most = max(1, min(40, records // (8 * kills)))  # transactions until one, so that it comes before the records end
    inside = [KillInside("kill_in_transaction", most), KillInside("kill_after_commit", most)]
    chance, began = random.Random(7), time.monotonic()
    faults: list[Fault] = [chance.choice([KillWorker(), KillWorker(), *inside]) for _ in range(kills)]
    async with arena(
        cluster,
        settings,
        folder,
        workers=workers,
        per_s=per_s,
        users=64,
        ask=ask,
        policies=lambda _: policy_of(settings),
        load_of=ForeignLoad,
    ) as place:
        place.load.most = records
        for number, fault in enumerate(faults):
            while len(place.watch.ended) < records * number // kills:
                await asyncio.sleep(0.1)
            place.load.most = sys.maxsize  # a worker that is killed in a transaction needs one
            await fault.inflict(place)
            place.load.most = records
            print(
                f"{number + 1}/{kills} {fault.name}; {place.load.sent} sent, {len(place.watch.ended)} ended", flush=True
            )
        while place.load.sent < records:
            await asyncio.sleep(0.1)
    verdict = await place.verdict()
    wrong = await wrong_foreign(settings)
    wrong += [] if verdict.clean else [verdict.line()]
    wrong += [f"a worker ended unasked: {how}" for how in place.exits]
    line = f"{place.load.sent} foreign records, {kills} kills, {time.monotonic() - began:.0f} s; {verdict.line()}"
    return line, wrong


async def _run(options: argparse.Namespace, folder: Path) -> int:
    cluster = KafkaCluster(folder / "kafka")
    await asyncio.to_thread(cluster.start)
    try:
        settings = Settings(
            _env_file=None,
            broker=cluster.broker_setting,
            partitions=4,
            engine="paced",
            paced_tokens_per_s=50.0,
            embedder="none",
        )
        await create_topics(settings)
        counts = partial(run, records=options.records, kills=options.kills, per_s=options.per_s)
        line, wrong = await counts(cluster, settings, folder / "arena", workers=options.workers)
    finally:
        cluster.kill()
    print(line)
    print("\n".join(wrong[:20]) or "nothing wrong")
    return 1 if wrong else 0


def main() -> int:
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    parser = argparse.ArgumentParser(prog="python -m tests.faults.foreign", description=__doc__)
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--per-s", type=float, default=15.0)
    parser.add_argument("--workers", type=int, default=2)
    with tempfile.TemporaryDirectory(prefix="parley-foreign-", ignore_cleanup_errors=True) as folder:
        return asyncio.run(_run(parser.parse_args(), Path(folder)))


if __name__ == "__main__":
    sys.exit(main())
