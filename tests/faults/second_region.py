"""A region is lost, another one goes on from what MirrorMaker has copied, and the first one gets its users back.

    python -m tests.faults.second_region [--seconds 20] [--behind 0]

1. Workers of region A answer while MirrorMaker copies its topics to region B. Then everything of A is killed: worker,
   broker, and MirrorMaker, which may be behind by then.
2. A worker starts in B, on an empty disk. It answers what was copied and not answered, and each user asks once more.
3. A new cluster takes A's place, and MirrorMaker copies B to it while B answers. Producers stop, B's worker ends once
   it has answered, and MirrorMaker once it has copied all. A worker starts in A, and each user asks once more.

Counted is what has not arrived, what is answered twice, and whether the last answers follow from the conversation.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

import msgspec
from aiokafka import AIOKafkaProducer

from app.kafka.topics import create_topics
from app.local.kafka import KafkaCluster
from app.settings import Settings
from app.wire.codec import decode
from app.wire.turn import Turn
from models.interface.chat import PastTurn
from models.served.paced import BytePrompts, word
from tables.records import Table
from tests.faults.load import Load
from tests.faults.mirror_maker import MirrorMaker
from tests.faults.records import Key, read_topic
from tests.faults.worker_process import WorkerProcess

PARTITIONS = 4
USERS = 16
TOKENS = 20
_COPIED_S = 60.0
_PATIENCE_S = 120.0
_SETTLE_S = 3.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """`requests` and `turns` are those of the region before. `unanswered` and `wrong` should be 0."""

    requests: int
    turns: int
    requests_not_copied: int
    turns_not_copied: int
    resumed: int
    """Requests that were copied and not answered in the copied turns, and that this region has answered."""
    twice: int
    """Requests with a copied turn that were answered again: their `ended` rows were not copied."""
    unanswered: int
    last_answers: int
    wrong: int
    """Last answers that do not follow from the user's turns in this region."""

    @property
    def is_right(self) -> bool:
        return not (self.wrong or self.unanswered) and self.last_answers == USERS

    @property
    def is_complete(self) -> bool:
        """Nothing is missing or doubled, as it should be after a planned move."""
        return self.is_right and not (self.requests_not_copied or self.turns_not_copied or self.twice)

    def show(self, title: str) -> None:
        print(title, flush=True)
        for name in self.__slots__:
            print(f"  {name.replace('_', ' ')}: {getattr(self, name)}", flush=True)


def question(number: int, user: str) -> dict[str, object]:
    return {"prompt": f"question {number} of {user}", "max_tokens": TOKENS}


def settings_of(folder: Path, cluster: KafkaCluster, region: str) -> Settings:
    return Settings(
        _env_file=None,
        broker=cluster.broker_setting,
        data_dir=folder / f"data-{region}",
        partitions=PARTITIONS,
        topic_prefix="region-",
        app_id="parley",
        engine="paced",
        embedder="none",
        paced_tokens_per_s=40.0,
    )


async def turns_of(settings: Settings) -> list[Turn]:
    """Committed turns in their order."""
    records = await read_topic(settings, "turns")
    return [decode(Turn, record.value, record.headers) for record in records if record.value is not None]


async def requests_of(settings: Settings) -> set[Key]:
    records = await read_topic(settings, "requests")
    found = (msgspec.json.decode(record.value or b"{}") for record in records)
    return {(request["user_id"], request["request_id"]) for request in found}


def key_of(turn: Turn) -> Key:
    return turn.user_id, turn.request_id


async def lose(
    folder: Path, here: KafkaCluster, there: KafkaCluster, seconds: float, behind: float
) -> tuple[set[Key], list[Turn]]:
    """Run region A and end it; returns what its topics had at the end. MirrorMaker ends `behind` seconds before it."""
    settings = settings_of(folder, here, "a")
    await create_topics(settings)
    mirror = MirrorMaker(folder / "mirror", here.address, there.address, settings)
    with WorkerProcess(settings, folder / "a.log") as worker:
        try:
            await asyncio.to_thread(worker.wait_owning, PARTITIONS)
            await asyncio.to_thread(mirror.start)
            async with Load(settings, per_s=10.0, users=USERS, ask=question):
                await _copying(settings_of(folder, there, "b"))
                print("MirrorMaker copies", flush=True)
                await asyncio.sleep(seconds)
                mirror.kill()
                await asyncio.sleep(behind)
                await asyncio.to_thread(worker.kill)
            # It stays up for a moment, only to be counted.
            return await requests_of(settings), await turns_of(settings)
        finally:
            mirror.kill()
            here.kill()


async def _copying(settings: Settings) -> None:
    async with asyncio.timeout(_COPIED_S):
        while True:
            try:
                if await turns_of(settings):
                    return
            except (LookupError, ValueError, AssertionError, TypeError):  # the topic is not there yet
                pass
            await asyncio.sleep(0.5)


async def move(folder: Path, here: KafkaCluster, there: KafkaCluster, seconds: float) -> tuple[set[Key], list[Turn]]:
    """Move region B's users to A as an operator would; returns what B's topics had at the end."""
    settings, target = settings_of(folder, here, "b"), settings_of(folder, there, "c")
    mirror = MirrorMaker(folder / "mirror-back", here.address, there.address, settings)
    with WorkerProcess(settings, folder / "b-again.log") as worker:
        try:
            await asyncio.to_thread(worker.wait_owning, PARTITIONS)
            await asyncio.to_thread(mirror.start)
            async with Load(settings, per_s=10.0, users=USERS, ask=question):
                await _copying(target)
                print("MirrorMaker copies back", flush=True)
                await asyncio.sleep(seconds)
            sent = await requests_of(settings)
            made = await _answered(settings, sent)
            worker.stop()
            await _copied_all(settings, target)
            return sent, made
        finally:
            mirror.kill()
            here.kill()


async def _copied_all(source: Settings, target: Settings) -> None:
    names = ["requests", "turns", *(f"{source.app_id}-{table.value}-changelog" for table in Table)]
    async with asyncio.timeout(_COPIED_S):
        for name in names:
            while len(await read_topic(target, name)) < len(await read_topic(source, name)):
                await asyncio.sleep(0.5)


async def go_on(folder: Path, there: KafkaCluster, region: str, sent: set[Key], made: list[Turn]) -> Outcome:
    """Answer in this region, and count what it has of those requests and turns of the region before."""
    settings = settings_of(folder, there, region)
    copied, copied_requests = await turns_of(settings), await requests_of(settings)
    await create_topics(settings)
    answered = {key_of(turn) for turn in copied}
    open_there = copied_requests - answered
    with WorkerProcess(settings, folder / f"{region}.log") as worker:
        await asyncio.to_thread(worker.wait_owning, PARTITIONS)
        await _answered(settings, open_there)
        await asyncio.sleep(_SETTLE_S)
        before = await turns_of(settings)
        last = await _ask_each(settings, f"last-{region}")
        turns = await _answered(settings, last)
        worker.stop()
    counted = Counter(map(key_of, turns))
    return Outcome(
        requests=len(sent),
        turns=len(made),
        requests_not_copied=len(sent - copied_requests),
        turns_not_copied=len({key_of(turn) for turn in made} - answered),
        resumed=len(open_there & set(counted)),
        twice=sum(counted[key] > 1 for key in answered),
        unanswered=len((open_there | last) - set(counted)),
        last_answers=len(last),
        wrong=_wrong(before, [turn for turn in turns if key_of(turn) in last], settings),
    )


async def _ask_each(settings: Settings, tag: str) -> set[Key]:
    """One more request of every user."""
    producer = AIOKafkaProducer(**settings.cluster.options())
    await producer.start()
    keys = {(f"user-{number}", f"{tag}-{number}") for number in range(USERS)}
    try:
        for number, (user, request_id) in enumerate(sorted(keys)):
            request = {"request_id": request_id, "user_id": user, **question(number, user)}
            await producer.send_and_wait(settings.topic("requests"), msgspec.json.encode(request), key=user.encode())
    finally:
        await producer.stop()
    return keys


async def _answered(settings: Settings, keys: set[Key]) -> list[Turn]:
    async with asyncio.timeout(_PATIENCE_S):
        while True:
            turns = await turns_of(settings)
            if keys <= set(map(key_of, turns)):
                return turns
            await asyncio.sleep(1.0)


def _wrong(before: list[Turn], last: list[Turn], settings: Settings) -> int:
    histories: defaultdict[str, list[PastTurn]] = defaultdict(list)
    for turn in before:
        histories[turn.user_id].append(PastTurn(turn.prompt, turn.answer))
    wrong = 0
    for turn in last:
        history = histories[turn.user_id][-settings.conversation_turns :]
        prompt = BytePrompts().build(settings.system_prompt, history, turn.prompt).ids
        wrong += turn.answer != "".join(word(prompt, index)[1] for index in range(TOKENS))
    return wrong


async def main(seconds: float, behind: float, folder: Path) -> int:
    here, there, back = (KafkaCluster(folder / f"kafka-{name}") for name in "abc")
    try:
        await asyncio.to_thread(here.start)
        await asyncio.to_thread(there.start)
        lost = await go_on(folder, there, "b", *await lose(folder, here, there, seconds, behind))
        lost.show("region A is lost, B goes on:")
        await asyncio.to_thread(back.start)
        moved = await go_on(folder, back, "c", *await move(folder, there, back, seconds))
        moved.show("the users move back:")
    finally:
        for cluster in (here, there, back):
            cluster.kill()
    return int(not (lost.is_right and moved.is_complete))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.faults.second_region", description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="how long MirrorMaker copies before A is lost")
    parser.add_argument(
        "--behind", type=float, default=0.0, help="seconds between the end of MirrorMaker and that of A"
    )
    options = parser.parse_args()
    logging.disable(logging.ERROR)  # aiokafka reports each look for a topic that is not there yet
    with tempfile.TemporaryDirectory(prefix="parley-regions-", ignore_cleanup_errors=True) as name:
        sys.exit(asyncio.run(main(options.seconds, options.behind, Path(name))))
