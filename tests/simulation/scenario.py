"""One run of the simulation: a load, faults at chosen moments, peace, and the verdict."""

from __future__ import annotations

import gc
import json
import logging
import random
import re
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from unittest.mock import patch
from zlib import crc32

import msgspec
from aiokafka import TopicPartition

from app.delivery import open_records
from app.delivery.partition import State
from app.delivery.record import REQUESTS
from app.policy.agents import AgentRules
from app.policy.file import (
    DEFAULT_MODEL,
    NO_POLICY,
    Arm,
    CacheRules,
    Fallback,
    Policy,
    Route,
    TenantRule,
    WaitRules,
    When,
)
from app.policy.guard_rules import GuardRules
from app.policy.tools import ApproveRules, ToolRules
from app.settings import Settings
from app.wire.codec import decode
from app.wire.event import TokenEvent
from app.wire.ids import partition_for
from models.interface.generation import Job
from models.served.paced import VERSION, BytePrompts
from tables.records import Table
from tests.faults.records import Key
from tests.simulation import foreign
from tests.simulation.asked import SimAskers
from tests.simulation.broker import Broker, Entry
from tests.simulation.desks import SimDesks
from tests.simulation.findings import Findings, Outcome
from tests.simulation.forks import answers_of
from tests.simulation.group import Group
from tests.simulation.load import Load, Sending
from tests.simulation.memory_store import Disk
from tests.simulation.milvus import MilvusServer
from tests.simulation.process import Fails, Process
from tests.simulation.programs import SimPrograms
from tests.simulation.sabotage import saboteurs
from tests.simulation.tools import SimToolPrograms
from tests.simulation.world import EPOCH, World

if TYPE_CHECKING:
    from tests.simulation.hostile import Arrived

SECRET = b"what an erasure has to hide"
QUESTION = re.compile(rb"question ([0-9]+)")
SESSION_S = 4.0
_ROUNDS_OF_COMMITS = 4
_PEACE_S = 400.0


@dataclass(frozen=True, slots=True)
class Conditions:
    """What the world of a run is like."""

    ttl_s: float = 1800.0
    sweep_s: float = 3.0
    skew: bool = False
    """Processes' wall clocks are an hour off."""
    milvus: bool = False
    """Turns are indexed, in a Milvus whose calls may land late."""
    crowded: bool = False
    """Workers are busy all the time: events carry several tokens, and commits wait for one another."""
    routed: bool = False
    """Each worker has routes of its own, so that no two of them decide alike."""
    mixed: bool = False
    """Some workers do not serve `small`: routes, chain and cache are off there. Some start without a policy, and
    read theirs before their first request.
    """
    pii: Literal["off", "mask"] = "off"
    """With `mask`, an analyzer that never finds the same twice decides what models see."""
    foreign: bool = False
    """Records of others' topics become requests, and answers are told there."""
    moderated: bool = False
    """Judges that never flag the same twice read prompts, and block answers with some words."""
    user_limit: int | None = None
    """Requests that each user may send in a minute."""
    sleeps_after_s: float | None = None
    """Answers that wait for tools fall asleep after so long."""
    approvals: ApproveRules | None = None
    """Calls wait for an approval (desks.py)."""
    agents: AgentRules | None = None
    """Calls are requests of this agent, `helper` (asked.py)."""
    within_s: float = 60.0
    """How long it has."""
    programs: tuple[str, ...] = ()
    """Agents that are programs (programs.py)."""
    most_asleep: int = 64
    """Answers of a user that may sleep."""
    rounds: int = 32
    """Requests that a partition holds in memory, as a multiple of those that may run."""


@lru_cache(maxsize=8)
def settings_for(name: str, partitions: int, max_in_flight: int, conditions: Conditions) -> Settings:
    fields = {"data_dir": Path(name), "partitions": partitions, "max_in_flight": max_in_flight}
    return _settings_under(conditions).model_copy(update=fields)


@lru_cache(maxsize=64)
def _settings_under(conditions: Conditions) -> Settings:
    """Pydantic takes longer for one of these than a simulated worker for a request."""
    return Settings(
        _env_file=None,
        engine="paced",
        embedder="same" if conditions.milvus else "none",
        paced_tokens_per_s=200.0 if conditions.crowded else 10.0,
        session_timeout_s=SESSION_S,
        commit_timeout_s=6.0,
        drain_s=1.0,
        sweep_interval_s=conditions.sweep_s,
        conversation_ttl_s=conditions.ttl_s,
        usage_window_s=2,
    )


PLAIN = Conditions()


def _without_small(policy: Policy) -> Policy:
    routes = tuple(route for route in policy.routes if "small" not in route.models)
    return msgspec.structs.replace(policy, routes=routes, fallback=Fallback(), cache=None)


def _some_policy(chance: random.Random) -> Policy:
    """Routes that decide otherwise on each worker: by chance, by arm, and by load."""
    arms = (Arm(model=DEFAULT_MODEL, weight=chance.random()), Arm(model="small", weight=chance.random()))
    relief = When(first_token_p95_ms_above=chance.choice((0.0, 500.0, 5000.0)))
    routes = (
        Route(name="relief", when=relief, model="small", notice="degraded"),
        Route(name="short", when=When(prompt_tokens_below=chance.choice((0, 11, 12))), model="small"),
        Route(name="tone", experiment="tone", arms=arms),
    )
    fallback = Fallback(chain=(DEFAULT_MODEL, "small"), failures=2, window_s=5, retry_s=2)
    cache = CacheRules(ttl_s=chance.choice((0.5, 5.0)), scope=chance.choice(("user", "tenant")))
    return Policy(routes=tuple(chance.sample(routes, chance.randint(1, 3))), fallback=fallback, cache=cache)


def _key_of(job: Job) -> Key:
    """Candidates of a best answer (app/features/best_of.py) are its request's."""
    user, _, name = job.id.rpartition("/")
    return user, name.partition("#")[0]


class Simulation:
    def __init__(
        self,
        seed: int,
        *,
        workers: int = 1,
        partitions: int = 1,
        load: Load | None = None,
        conditions: Conditions = PLAIN,
    ) -> None:
        self.world = World(seed)
        self.random, self.began = self.world.random, self.world.now
        self.broker = Broker(self.world)
        self.broker.foreign = dict(foreign.PARTITIONS) if conditions.foreign else {}
        self.group = Group(self.broker, partitions, SESSION_S)
        self.disk = Disk()
        self.processes: list[Process] = []
        self.endless: set[Key] = set()
        self.deadly: set[Key] = set()
        self.failing: dict[Key, bool] = {}
        """Requests in which a model fails, and whether the default model always does."""
        self.besieged = False
        self.hostile: dict[tuple[str, int, int], Arrived] = {}
        """Hostile records by topic, partition and offset (hostile.py)."""
        self.told_secrets: set[Key] = set()
        """Requests whose model has read what a user's erasure has to hide (big_erasure.py)."""
        self.prompts: dict[Key, dict[str, set[str]]] = {}
        """The requests whose questions models have read, by the requests that they answered and the prompt's digest."""
        self.prompt_bytes: dict[tuple[Key, str], bytes] = {}
        """What models have read, among programs."""
        self.read_at: dict[tuple[Key, str], int] = {}
        """When models have last read each prompt, by request and digest: the broker's clock, Unix milliseconds."""
        self.torn: set[Key] = set()
        """Requests whose events Kafka has lost."""
        self.milvus = MilvusServer(late=0.1) if conditions.milvus else None
        self.conditions = conditions
        self._sent_until = 0.0
        self.partitions = partitions
        self.tools: SimToolPrograms | None = None
        self.programs: SimPrograms | None = None
        self._in_flight = self.random.choice((1, 2, 8))
        self._wanted = workers
        for number in range(workers):
            self.start(f"w{number}")
        load = load or Load()
        if load.tools:
            self.tools = SimToolPrograms(seed, self.broker, self.settings(), load.tools_late_s)
        self.desks = None if conditions.approvals is None else SimDesks(seed, self.broker, partitions)
        self.askers = SimAskers(seed, self.broker, partitions) if conditions.agents and load.tools else None
        Sending(self, load).begin()

    def _is_deadly(self, process: Process, job: Job) -> bool:
        user, request_id = _key_of(job)
        prompt = bytes(token % 256 for token in job.prompt)
        if SECRET in prompt:
            self.told_secrets.add((user, request_id))
        questions = {f"r{number.decode()}" for number in QUESTION.findall(prompt)}
        digest = BytePrompts().of_ids(prompt).digest
        self.prompts.setdefault((user, request_id), {})[digest] = questions
        if self.conditions.programs:
            self.prompt_bytes[(user, request_id), digest] = prompt
        # One that was suspended knows of no erasure.
        if not process.is_superseded(partition_for(user, self.partitions)):
            self.read_at[(user, request_id), digest] = int(self.world.now * 1000)
        return (user, request_id) in self.deadly

    @property
    def alive(self) -> list[Process]:
        return [process for process in self.processes if not process.dead]

    def settings(self, name: str = "outside") -> Settings:
        return settings_for(name, self.partitions, self._in_flight, self.conditions)

    def start(self, name: str) -> Process:
        skew = self.random.choice((-3600.0, 0.0, 3600.0)) if self.conditions.skew else 0.0
        small = not self.conditions.mixed or self.random.random() < 0.5
        process = Process(
            name,
            self.settings(name),
            self.broker,
            self.group,
            self.disk,
            milvus=self.milvus,
            crowded=self.conditions.crowded,
            policy=self._policy() if small else _without_small(self._policy()),
            small=small,
            fails=self._fails(),
            reads_late=self.conditions.mixed and len(self.processes) % 2 == 1,
            skew=skew,
            on_death=self._supervise,
            is_deadly=self._is_deadly,
        )
        self.processes.append(process)
        return process

    @property
    def masked(self) -> bool:
        return self.conditions.pii != "off"

    def _policy(self) -> Policy:
        policy = _some_policy(self.random) if self.conditions.routed else NO_POLICY
        if self.conditions.user_limit is not None:
            tenants = {"acme": TenantRule(user_requests_per_min=self.conditions.user_limit)}
            policy = msgspec.structs.replace(policy, tenants=tenants)
        if self.conditions.sleeps_after_s is not None:
            waits = WaitRules(park_after_s=self.conditions.sleeps_after_s, per_user=self.conditions.most_asleep)
            policy = msgspec.structs.replace(policy, waits=waits)
        if self.conditions.programs:
            desk = AgentRules(program=True, within_s=self.conditions.within_s)
            agents = {"helper": AgentRules(), **dict.fromkeys(self.conditions.programs, desk)}
            policy = msgspec.structs.replace(policy, agents=agents)
        if self.conditions.agents is not None:
            tools = {"look_up": ToolRules(ask="helper", within_s=self.conditions.within_s)}
            policy = msgspec.structs.replace(policy, tools=tools, agents={"helper": self.conditions.agents})
        if self.conditions.approvals is not None:
            tools = {"look_up": ToolRules(approve=self.conditions.approvals)}
            policy = msgspec.structs.replace(policy, tools=tools)
        if self.conditions.foreign:
            policy = msgspec.structs.replace(policy, intake=foreign.INTAKE, egress=foreign.EGRESS)
        if not (self.masked or self.conditions.moderated):
            return policy
        rules = GuardRules(pii=self.conditions.pii, on_failure=self.random.choice(("closed", "open")))
        if self.conditions.moderated:
            rules = msgspec.structs.replace(
                rules, prompt={"risky": "flag"}, answer={"banned": "block", "risky": "flag"}, on_failure="closed"
            )
        return msgspec.structs.replace(policy, guard=rules)

    def _fails(self) -> Fails:
        """When models fail in one process."""
        failed: set[Key] = set()

        def fails(version: str, job: Job) -> int | None:
            key = _key_of(job)
            if key not in self.failing:
                return None
            if self.failing[key]:
                return crc32(key[1].encode()) % 4 if version == VERSION else None
            if key in failed:
                return None
            failed.add(key)
            return len(job.generated) + self.random.randint(0, 3)

        return fails

    def _supervise(self, name: str) -> None:
        """What a supervisor does about a process that ended by itself."""
        self.world.after(1.0, partial(self.start_again, name))

    def start_again(self, name: str) -> None:
        if name not in {process.name for process in self.alive}:
            self.start(name)

    def keep_running(self, seconds: float) -> None:
        """Make no peace before that time."""
        self._sent_until = max(self._sent_until, seconds)

    def at_step(self, step: int, happens: Callable[[], None]) -> None:
        self.world.at_step[step] = happens

    def run(self) -> Outcome:
        logging.disable(logging.CRITICAL)
        # What a cycle holds would end, as steps of the run, when the process happens to have made enough objects.
        collects = gc.isenabled()
        gc.disable()
        try:
            rounds = {**open_records.ROUNDS, REQUESTS: self.conditions.rounds}
            with patch.object(open_records, "ROUNDS", rounds), saboteurs() if self.besieged else nullcontext():
                return self._run()
        finally:
            for process in list(self.processes):
                process.kill()
            if self.programs is not None:
                self.programs.close()
            if collects:
                gc.enable()
            logging.disable(logging.NOTSET)

    def _run(self) -> Outcome:
        self.world.run(EPOCH + max(16.0, self._sent_until))
        self._make_peace()
        settled, until = False, self.world.now
        while not settled and self.world.now < EPOCH + max(0.0, self._sent_until - 30.0) + _PEACE_S:
            until += 1.0
            self.world.run(until)
            settled = self._settled()
        self.world.run(until + (90.0 if self.milvus is not None else 10.0))
        for _ in range(_ROUNDS_OF_COMMITS):  # a worker applies a commit when it hears of it
            if not Findings(self).stores_that_differ():
                break
            self.world.run(self.world.now + 0.5)
        return Findings(self).outcome()

    def lost(self, entries: list[Entry]) -> None:
        """Kafka has lost these records of `tokens`: what becomes of their answers is not the workers' doing."""
        for entry in entries:
            if not entry.marker:
                event = decode(TokenEvent, entry.value, entry.headers)
                self.torn.add((event.user_id or "", event.request_id or ""))

    def _make_peace(self) -> None:
        self.world.at_step.clear()
        self.broker.up = True
        self.broker.trouble = 0.0
        for process in self.alive:
            process.link_up = True
            process.resume()
        if not [process for process in self.alive if not process.leaving]:
            self.start("last")

    def _settled(self) -> bool:
        if self.conditions.foreign and not foreign.is_taken(self.broker):
            return False
        if self.conditions.sleeps_after_s is not None and self._sleeps():
            return False
        topics = ("requests",) if self.milvus is None else ("requests", "turns", "controls")
        for at in (TopicPartition(topic, number) for topic in topics for number in range(self.partitions)):
            committed = self.broker.committed.get(at)
            entries = [entry for entry in self.broker.log(at).entries if entry.visible]
            if entries and (committed is None or committed.offset <= entries[-1].offset):
                return False
        return True

    def _sleeps(self) -> bool:
        """Whether an answer may sleep."""
        owned = (one for process in self.alive for one in process.partitions if one.state is State.OWNED)
        stores = {one.number: one.ownership.store for one in owned}
        return len(stores) < self.partitions or any(
            next(iter(store.scan(Table.ASLEEP)), None) is not None for store in stores.values()
        )

    def written_of(self, user: str, request_id: str) -> list[int]:
        """The tokens that readers have of an answer."""
        at = TopicPartition("tokens", partition_for(user, self.partitions))
        answer = answers_of(entry for entry in self.broker.log(at).entries if entry.visible and entry.value).get(
            (user, request_id)
        )
        return [] if answer is None else [*answer.tokens]

    def send(
        self, topic: str, user: str, record: dict[str, object], *, skew: float = 0.0, misplaced: bool = False
    ) -> None:
        self._append(topic, user, json.dumps(record).encode(), skew=skew, misplaced=misplaced)

    def _append(self, topic: str, user: str, value: bytes, *, skew: float = 0.0, misplaced: bool = False) -> None:
        number = (partition_for(user, self.partitions) + misplaced) % self.partitions
        at = TopicPartition(topic, number)
        self.broker.append(at, user.encode(), value, timestamp=self.world.now + skew)
        if self.random.random() < 0.2:
            self.broker.append(at, None, None, marker=True)  # a hole, as transactional producers make them
