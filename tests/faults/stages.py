"""The parts of the long run: each has workers of its own kind, and the faults that are for them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from app.local.milvus import MilvusNode
from app.local.ports import free_port
from app.policy.tools import ApproveRules
from tests.faults import engine_faults, milvus_faults
from tests.faults.arena import Policies
from tests.faults.faults import (
    KILLS,
    OTHERS,
    DataStale,
    DataWiped,
    Fault,
    KillInside,
    KillWorker,
    RebalanceStorm,
    RollingRestart,
    Zombie,
)
from tests.faults.load import (
    BUSY_USERS,
    SLEEPING_USERS,
    Ask,
    busy_question,
    decided_question,
    long_question,
    paced_question,
    shop_question,
    sleeping_question,
    tool_question,
)
from tests.faults.moderation_server import moderation_policy
from tests.faults.poison import Oversize, Poison
from tests.faults.policies import APPROVALS, sleeping_policy, some_policy
from tests.faults.proxy import Proxy
from tests.faults.readers import AbsentReader, SlowReader

Kills = Sequence[tuple[float, Fault]]


@dataclass(frozen=True)
class Stage:
    """`kills` are drawn by their weight, `others` each have their turn."""

    name: str
    settings: Mapping[str, object]
    kills: Kills
    others: Sequence[Fault]
    ask: Ask = paced_question
    per_s: float = 5.0
    users: int = 16
    skew_s: float = 0.0
    """By how much the clocks of workers are wrong, one ahead and the next behind, and those of some producers."""
    always: str = ""
    """A plug of every worker."""
    policies: Policies | None = None
    """The policy file of a worker; another one at each of its starts."""
    approvals: ApproveRules | None = None
    """Those of the policy."""
    moderated: bool = False
    """Answers are judged, and some are blocked."""

    def schedule(self, chance: random.Random, *, kills: int, others: int, only: str) -> list[Fault]:
        weights = [weight for weight, _ in self.kills]
        faults = chance.choices([kill for _, kill in self.kills], weights, k=kills) if kills else []
        parts = only.split(",")
        for fault in [fault for fault in self.others if any(part in fault.name for part in parts)] * others:
            faults.insert(chance.randint(0, len(faults)), fault)
        return faults


@asynccontextmanager
async def with_milvus(folder: Path) -> AsyncIterator[tuple[Stage, MilvusNode]]:
    """Workers that keep the history, with a Milvus of their own behind a proxy."""
    node = MilvusNode(folder, free_port())
    try:
        await asyncio.to_thread(node.start)
        async with Proxy(node.port) as proxy:
            values = {**PACED.settings, "embedder": "minilm", "milvus_uri": f"http://127.0.0.1:{proxy.port}"}
            yield Stage("history", values, (), milvus_faults.faults_of(node, proxy)), node
    finally:
        node.kill()


@asynccontextmanager
async def with_memories(folder: Path) -> AsyncIterator[Stage]:
    """The stage of decisions, with a Milvus in which related turns are found."""
    node = MilvusNode(folder, free_port())
    try:
        await asyncio.to_thread(node.start)
        yield replace(ROUTES, settings={**ROUTES.settings, "embedder": "minilm", "milvus_uri": node.uri})
    finally:
        node.kill()


@asynccontextmanager
async def with_judge() -> AsyncIterator[Stage]:
    """Workers whose answers are judged by a server, in a sentence or in pieces of some 60 words."""
    async with moderation_policy() as policy:
        yield Stage(
            "guard",
            {**PACED.settings, "paced_tokens_per_s": 60.0},
            KILLS,
            (Zombie(), RebalanceStorm()),
            long_question,
            per_s=3.0,
            policies=lambda _chance: policy,
            moderated=True,
        )


PACED = Stage(
    "paced engine",
    {"engine": "paced", "paced_tokens_per_s": 10.0, "sweep_interval_s": 2.0},
    KILLS,
    (*OTHERS, Poison(), Oversize(), SlowReader(), AbsentReader()),
)
# A user asks every seven seconds, and the last answer ended two seconds after its question: at the edge of the TTL.
# Answers of two seconds that mostly outlast the grace period: they are handed over, to a warm copy of the tables.
ROLLING = Stage(
    "rolling restarts", {**PACED.settings, "standby_replicas": 1, "drain_s": 0.2}, (), (RollingRestart(),), per_s=8.0
)
EXPIRY = Stage(
    "expiry and wrong clocks",
    {**PACED.settings, "conversation_ttl_s": 5.0, "sweep_interval_s": 1.0},
    KILLS,
    (Zombie(), RebalanceStorm(), Zombie(), RebalanceStorm()),
    users=36,
    skew_s=3500.0,
)
TOOLS = Stage(
    "tools over Kafka",
    {**PACED.settings, "paced_tokens_per_s": 20.0},
    KILLS,
    (Zombie(), RebalanceStorm()),
    tool_question,
    per_s=3.0,
    users=24,
)
BUSY = Stage(
    "words while busy",
    {**PACED.settings, "paced_tokens_per_s": 20.0},
    KILLS,
    (Zombie(), RebalanceStorm()),
    busy_question,
    per_s=8.0,
    users=BUSY_USERS,
)
SLEEPING = Stage(
    "answers that sleep",
    {**PACED.settings, "paced_tokens_per_s": 20.0},
    (
        (6.0, KillWorker()),
        (1.0, KillInside("kill_in_transaction", 30)),
        (1.0, KillInside("kill_after_commit", 30)),
        (1.0, KillInside("kill_after_done", 10)),
        (2.0, KillInside("kill_waiting", 10)),
        (2.0, KillInside("kill_asleep", 10)),
        (2.0, KillInside("kill_woken", 10)),
    ),
    (Zombie(), RebalanceStorm(), DataWiped(), DataStale()),
    sleeping_question,
    per_s=3.0,
    users=SLEEPING_USERS,
    always="two_tools",
    policies=sleeping_policy,
    approvals=APPROVALS,
)
ROUTES = Stage(
    "routes",
    {**PACED.settings},
    (*KILLS, (5.0, KillInside("kill_after_plan", 20))),
    (Zombie(), RebalanceStorm()),
    ask=decided_question,
    per_s=2.5,
    users=8,
    always="model_fails",
    policies=some_policy,
)
REAL = Stage(
    "demo model", {"engine": "torch", "threads": 1}, engine_faults.KILLS, engine_faults.OTHERS, shop_question, 2.0
)
EIGHT_BITS = replace(REAL, name="demo model in eight bits", settings={**REAL.settings, "quantize": "int8"}, others=())
