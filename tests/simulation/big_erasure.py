"""A user with thousands of conversations is erased, and goes on asking, while owners die."""

from __future__ import annotations

import random
from functools import partial

from aiokafka import TopicPartition

from app.delivery.commits.changelog import changelog_topic
from tables import records
from tables.records import Conversation, KeptTurn, Table
from tests.simulation.faults import broker_away, cut_off, inflict, kill, rebalance, suspend
from tests.simulation.scenario import SECRET, Load, Simulation

_USER = "user-0"
_CONVERSATIONS = 3000
_ASKS = 24
_ERASED_S = 2.0


def big_erasure(seed: int) -> Simulation:
    simulation = Simulation(seed, workers=2, load=Load(requests=8, users=2, tokens=2, over_s=8.0))
    chance = random.Random(f"big erasure {seed}")
    _remember(simulation)
    send = partial(simulation.send, "controls", _USER, {"type": "erase", "user_id": _USER})
    simulation.world.after(_ERASED_S, send)
    for number in range(_ASKS):
        conversation = f"old-{chance.randrange(_CONVERSATIONS)}"
        request = {"request_id": f"x{number}", "user_id": _USER, "prompt": f"question x{number}", "max_tokens": 2}
        ask = partial(simulation.send, "requests", _USER, request | {"conversation_id": conversation})
        simulation.world.after(_ERASED_S + chance.uniform(0.2, 6.0), ask)
    for _ in range(chance.randint(1, 5)):
        fault = chance.choice((kill, kill, suspend, cut_off, rebalance, broker_away))
        simulation.world.after(_ERASED_S + chance.uniform(0.0, 2.0), partial(inflict, simulation, fault))
    return simulation


def _remember(simulation: Simulation) -> None:
    """The conversations, as a changelog of yesterday."""
    settings = simulation.settings()
    at = TopicPartition(changelog_topic(settings, Table.CONVERSATIONS), 0)
    now = int(simulation.world.now * 1000)
    for number in range(_CONVERSATIONS):
        turn = KeptTurn(f"old-{number}", SECRET.decode(), "an answer", now)
        row = records.encode(Conversation(now, (turn,)))
        simulation.broker.append(at, records.key(_USER, f"old-{number}"), row, timestamp=simulation.world.now)
