"""Programs of an agent in virtual time: functions over `parley_client.agents`, which run in processes that die.

Each process reads `tool-calls` from the place that is committed, so what it reads is late, twice, and in another
process than before; its results, too.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from aiokafka import TopicPartition
from parley_client.agents import AgentRequest, Agents, Step, StepError
from parley_client.agents.step import Command, PastStep, Steps

from app.features.programs.history import is_step_name
from app.wire.codec import decode
from app.wire.tool_records import ToolCallRecord
from tests.simulation.broker import Broker

MadeAgents = Callable[[], Agents]


class SimPrograms:
    """`made` makes the functions of one life of a process. With a `chance` it dies, answers late and twice."""

    def __init__(
        self, broker: Broker, partitions: int, made: MadeAgents, chance: random.Random | None = None, dies: float = 0.2
    ) -> None:
        self._broker, self.made, self._chance, self._dies = broker, made, chance, dies
        self._loop = asyncio.new_event_loop()
        self.agents = made()
        self.has_changed = False
        self.others: tuple[MadeAgents, ...] = ()
        """Other programs that it was meanwhile."""
        self.answered: list[tuple[str, dict[str, Any]]] = []
        self._positions: dict[int, int] = {}
        for number in range(partitions):
            broker.log(TopicPartition("tool-calls", number)).readers.append(partial(self._poke, number))

    def _poke(self, number: int) -> None:
        late = 0.02 if self._chance is None else 0.05 * self._chance.random()
        self._broker.world.after(late, partial(self._look, number))

    def die(self) -> None:
        """The process is another one from now on."""
        self.close()
        self._loop = asyncio.new_event_loop()
        self.agents = self.made()

    def is_own(self, asked: dict[str, Any]) -> bool:
        """Whether one of the programs makes these steps."""
        return any(self._makes(made(), asked) for made in (self.made, *self.others))

    @staticmethod
    def _makes(agents: Agents, asked: dict[str, Any]) -> bool:
        told, recorded = asked["request"], asked["steps"]
        request = AgentRequest(**{**told, "messages": ()})
        replay = _Replay([PastStep(one["command"], one["outcome"]) for one in recorded])
        with suppress(Exception):  # `_IsOverError`, and what the function fails with
            asyncio.run(agents._programs["desk"](Step(request, replay), request))
        made = [json.loads(json.dumps(one)) for one in replay.made[: len(recorded)]]
        for one in made:
            one.pop("value", None)
        if len(made) + 1 == len(recorded):  # a text that it returns is said
            made.append(recorded[-1]["command"] if recorded[-1]["command"]["command"] == "say" else {})
        return made == [one["command"] for one in recorded]

    def close(self) -> None:
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self._loop.run_until_complete(asyncio.wait(tasks))
        self._loop.close()

    def _look(self, number: int) -> None:
        log = self._broker.log(TopicPartition("tool-calls", number))
        entries, self._positions[number] = log.read(self._positions.get(number, 0), 100)
        for entry in entries:
            call = decode(ToolCallRecord, entry.value, entry.headers)
            if is_step_name(call.name):
                self._answer(number, call)

    def _answer(self, number: int, call: ToolCallRecord) -> None:
        chance = self._chance
        if chance is not None and chance.random() < self._dies:
            if chance.random() < 0.5:
                self.die()
                self._broker.world.after(chance.choice((0.1, 2.0)), partial(self._answer, number, call))
                return
            self._broker.world.after(chance.choice((0.1, 2.0)), partial(self._answer, number, call))
        command = self._loop.run_until_complete(
            self.agents.command(call.name.partition(":")[2], json.loads(call.arguments))
        )
        if command is None:
            return
        self.answered.append((call.tool_call_id, command))
        ids = {"tool_call_id": call.tool_call_id, "request_id": call.request_id, "user_id": call.user_id}
        value = json.dumps({**ids, "content": json.dumps(command)}).encode()
        for _ in range(1 if chance is None or chance.random() > 0.2 else 2):
            late = 0.0 if chance is None else chance.choice((0.0, 0.0, 0.3, 3.0)) * chance.random()
            at, key = TopicPartition("tool-results", number), call.user_id.encode()
            self._broker.world.after(late, partial(self._broker.append, at, key, value))


class _IsOverError(Exception):
    """All recorded steps are made."""


class _Replay(Steps):
    """Gives a function the recorded outcomes, whatever steps it makes."""

    async def outcome(self, command: Command) -> Any:
        self.made.append(command)
        if len(self.made) > len(self.past):
            raise _IsOverError
        return self.past[len(self.made) - 1].outcome


def random_steps(version: int) -> MadeAgents:
    """An agent of as many random steps as its request says by its id, with others behind a change of the version."""

    def made() -> Agents:
        agents = Agents()

        @agents.agent("desk")
        async def desk(step: Step, request: AgentRequest) -> str | None:
            chance = random.Random(f"{request.user_id} {request.request_id}")
            for number in range(chance.randint(2, 9)):
                kind = chance.choice(("say", "answer", "call", "run", "sleep", "approve", "ask"))
                size = chance.randint(1, 6)
                late = 10 * version * (number > 0)
                with suppress(StepError):
                    match kind:
                        case "say":
                            await step.say(f"Said in {number + late}.")
                        case "answer":
                            await step.answer(f"Answer {number + late}.", max_tokens=size)
                        case "call":
                            await step.call("look_up", {"word": str(number + late)})
                        case "run":
                            await step.run(lambda size=size: {"size": size})
                        case "sleep":
                            await step.sleep(float(size))
                        case "approve":
                            await step.approve("large", {"size": size + late}, by="desk", within_s=5.0 * size)
                        case "ask":
                            await step.ask("helper", f"Help {number + late}.", within_s=60.0)
            return chance.choice((None, "Done."))

        return agents

    return made
