"""Programs of others (`parley_client.agents`) among kills: `python -m tests.simulation --agent FILE`.

The file is executed anew for each life of its process, as a restart does. Tools, desks and agents that it asks are
those of the storms: their outcomes are random, and some are errors.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from runpy import run_path
from typing import Any

from parley_client.agents import AgentRequest, Agents, Decision, Step
from parley_client.plugins import PluginError

from tests.simulation.program_storms import program_storm
from tests.simulation.programs import MadeAgents
from tests.simulation.promises import CONTAINED, SAME_STEPS, WHOLE, Broken

_MOST_S, _MOST_WAIT_S = 300.0, 20.0


@dataclass(frozen=True, slots=True)
class CheckedAgent:
    name: str
    storms: int
    answers: int
    broken: tuple[Broken, ...]


def check_agents(file: Path, prompt: str | None, seeds: int, first: int = 0) -> list[CheckedAgent]:
    """All agents of the file; raises `PluginError` if it has none."""
    names = sorted(_agents_of(file)._programs)
    return [_checked(name, partial(_made, file, name, prompt), seeds, first) for name in names]


def _agents_of(file: Path) -> Agents:
    try:
        found = [one for one in run_path(str(file), run_name=file.stem).values() if isinstance(one, Agents)]
    except Exception as error:
        raise PluginError(f"{file} cannot be executed: {type(error).__name__}: {error}") from error
    if not found or not found[0]._programs:
        raise PluginError(
            f"{file} has no agents: a variable of it is an `Agents()`, whose `agent(NAME)` decorates them"
        )
    return found[0]


class _Hurried(Step):
    """The world of a storm ends after some minutes."""

    async def approve(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, by: str, within_s: float = _MOST_WAIT_S
    ) -> Decision:
        return await super().approve(name, arguments, by=by, within_s=min(within_s, _MOST_WAIT_S))

    async def ask(self, agent: str, prompt: str, *, within_s: float = _MOST_WAIT_S) -> str:
        return await super().ask(agent, prompt, within_s=min(within_s, _MOST_WAIT_S))

    async def sleep(self, seconds: float) -> None:
        await super().sleep(min(seconds, _MOST_WAIT_S))


def _made(file: Path, name: str, prompt: str | None) -> Agents:
    """Those of one life, under the name that the storms ask."""
    agents, program = Agents(), _agents_of(file)._programs[name]

    @agents.agent("desk")
    async def desk(step: Step, request: AgentRequest) -> str | None:
        asked = request if prompt is None else replace(request, prompt=prompt)
        return await program(_Hurried(step._request, step._steps), asked)

    return agents


def _checked(name: str, made: MadeAgents, seeds: int, first: int) -> CheckedAgent:
    broken: dict[str, Broken] = {}
    storms, answers, began = 0, 0, time.monotonic()
    for seed in range(first, first + seeds):
        if time.monotonic() - began > _MOST_S:
            break
        storms += 1
        commands, wrong = _storm(seed, made)
        answers += sum(one["command"] == "end" for one in commands)
        failed = [one["message"] for one in commands if one["command"] == "fail"]
        for one in _signs(failed, wrong):
            broken.setdefault(one.promise, Broken(one.promise, f"{one.sign} (seed {seed})"))
    return CheckedAgent(name, storms, answers, tuple(broken.values()))


def _storm(seed: int, made: MadeAgents) -> tuple[list[dict[str, str]], list[str]]:
    """The commands that the program gave, and what else went wrong."""
    simulation = program_storm(seed, made=made)
    outcome = simulation.run()
    assert simulation.programs is not None
    wrong = [*outcome.wrong, *outcome.crashes, *([] if outcome.verdict.clean else [outcome.verdict.line()])]
    return [command for _, command in simulation.programs.answered], wrong


def _signs(failed: list[str], wrong: list[str]) -> Iterator[Broken]:
    """What a program ends itself tears its answer: that is told by its own sign."""
    for message in failed:
        yield Broken(SAME_STEPS if "the program has changed" in message else CONTAINED, message)
    if not failed:
        yield from (Broken(SAME_STEPS if "program" in line else WHOLE, line) for line in wrong)


def report_agents(file: Path, prompt: str | None, seeds: int, first: int) -> int:
    """Print what was found; the exit code."""
    try:
        checked = check_agents(file, prompt, seeds, first)
    except PluginError as error:
        print(error)
        return 2
    for one in checked:
        told = f"{one.storms} storms, {one.answers} answers, {len(one.broken)} promises broken"
        print(f"agent {one.name!r} of {file}: {told}", flush=True)
        for broken in one.broken:
            print(f"  {broken.promise}: {broken.sign}", flush=True)
    return 1 if any(one.broken for one in checked) else 0
