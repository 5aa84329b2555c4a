"""Answers that slept, asked for once more where nothing sleeps and nobody is killed: their tokens must be the same.

The requests of answers that are alone in their conversations go, with their ids, to a worker of the same kind on topics
of its own, with no `[waits]` and no approvals. Each call has at once the result that the answer went on with before.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from aiokafka import AIOKafkaProducer

from app.kafka.topics import create_topics
from app.reader import Answer, ReaderRule
from app.settings import Settings
from app.wire.codec import decode
from app.wire.event import TOOL_RESULTS, WAITING, TokenEvent
from app.wire.turn import Turn
from models.interface.generation import FinishReason
from tests.faults.records import Fetched, Key, read_topic, turn_of
from tests.faults.tool_programs import RecordedPrograms
from tests.faults.watch import Watch
from tests.faults.worker_process import WorkerProcess

_PATIENCE_S = 120.0


@dataclass
class AskedAgain:
    asked: int = 0
    changed: list[Key] = field(default_factory=list)


@dataclass
class _Slept:
    """What a reader of `tokens` has."""

    rule: ReaderRule = field(default_factory=lambda: ReaderRule(remember=1 << 60))
    results: dict[str, str] = field(default_factory=dict)
    slept: set[Key] = field(default_factory=set)

    def read(self, record: Fetched) -> None:
        event = decode(TokenEvent, record.value, record.headers)
        key = (event.user_id or "", event.request_id or "")
        if self.rule.read(record.partition, record.offset, event) is None or event.notice is None:
            return
        details = event.notice.details or {}
        if event.notice.code == WAITING and details["kind"] != "timer":
            self.slept.add(key)
        if event.notice.code == TOOL_RESULTS:
            self.results |= {one["tool_call_id"]: one["content"] for one in details["results"]}

    def has_whole(self, key: Key, turn: Turn | None) -> bool:
        """An answer that slept, to its end, and all that it went on with. A notice may die with its worker."""
        if key not in self.slept or turn is None or turn.finish_reason is not FinishReason.LENGTH:
            return False
        return all(call.id in self.results for call in turn.tool_calls or ())


class Unslept:
    """`settings` are those of the answers that slept, `plug` that of their workers."""

    def __init__(self, settings: Settings, folder: Path, plug: str = "") -> None:
        prefix = f"{settings.topic_prefix}again-"
        own = {"topic_prefix": prefix, "app_id": f"{prefix}app", "data_dir": folder / "data", "policy": None}
        faster = {"paced_tokens_per_s": 200.0, "max_in_flight": 64}
        self._settings, self._before = settings.model_copy(update=own | faster), settings
        self._folder, self._plug = folder, (plug, 0) if plug else None

    async def wrong(self) -> AskedAgain:
        before = _Slept()
        for record in await read_topic(self._before, "tokens"):
            before.read(record)
        turns = {(one.user_id, one.request_id): one for one in map(turn_of, await read_topic(self._before, "turns"))}
        asked, of_conversation = dict[Key, dict[str, object]](), defaultdict[tuple[str, str], set[str]](set)
        for record in await read_topic(self._before, "requests"):
            request = json.loads(record.value or b"")
            key = (request["user_id"], request["request_id"])
            of_conversation[key[0], request["conversation_id"]].add(key[1])
            if before.has_whole(key, turns.get(key)):
                asked.setdefault(key, request | {"tool_timeout_ms": 600_000})
        alone = {(user, *ids) for (user, _), ids in of_conversation.items() if len(ids) == 1}
        asked = {key: request for key, request in asked.items() if key in alone}
        self._folder.mkdir(parents=True, exist_ok=True)
        await create_topics(self._settings)
        worker = WorkerProcess(self._settings, self._folder / "worker.log", self._plug)
        async with Watch(self._settings) as watch, RecordedPrograms(self._settings, before.results):
            with worker:
                await asyncio.to_thread(worker.wait_owning, self._settings.partitions)
                await self._ask([*asked.values()])
                async with asyncio.timeout(_PATIENCE_S + len(asked)):
                    while asked.keys() - watch.ended:
                        await asyncio.sleep(0.1)
        again, first = watch.rule.answers, before.rule.answers
        return AskedAgain(len(asked), [key for key in asked if _said(first[key]) != _said(again[key])])

    async def _ask(self, requests: list[dict[str, object]]) -> None:
        async with AIOKafkaProducer(**self._settings.cluster.options()) as producer:
            for request in requests:
                key, value = str(request["user_id"]).encode(), json.dumps(request).encode()
                await producer.send_and_wait(self._settings.topic("requests"), value, key=key)


def _said(answer: Answer) -> tuple[list[int], str, str]:
    return [*answer.tokens], answer.text, answer.reasoning
