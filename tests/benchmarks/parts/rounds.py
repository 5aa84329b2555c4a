"""Rounds that alternate between systems, so that all of them see the same machine."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack

import msgspec

from tests.benchmarks.load import Load, Reply
from tests.benchmarks.processes import Used
from tests.benchmarks.progress import report
from tests.benchmarks.stats import Figures, stats
from tests.benchmarks.systems import System

REST_S = 0.5  # between two rounds: what one leaves behind is not the next one's load


class Measured(msgspec.Struct):
    """Of all rounds of one system at one load."""

    stats: Figures
    replies: list[Reply]
    used: Used

    @property
    def tokens(self) -> int:
        return sum(reply.tokens for reply in self.replies)


async def start(stack: AsyncExitStack, systems: Sequence[System]) -> None:
    """Two at once: they spend most of it on importing."""
    two = asyncio.Semaphore(2)

    async def begin(system: System) -> None:
        async with two:
            report(f"starting {system.name}")
            await stack.enter_async_context(system)

    await asyncio.gather(*map(begin, systems))


async def start_peers(stack: AsyncExitStack, peers: Sequence[System]) -> tuple[list[System], list[str]]:
    """Those that started, and a line for each that did not: a peer that fails costs the others nothing."""
    started: list[System] = []
    failed: list[str] = []
    for peer in peers:
        try:
            await start(stack, [peer])
        except RuntimeError as error:
            failed.append(f"{peer.name} is skipped: {str(error).splitlines()[0]}")
            report(failed[-1])
        else:
            started.append(peer)
    return started, failed


async def alternate(loads: Mapping[System, Load], rounds: int, warm_up: float) -> dict[System, Measured]:
    """Each system with its load, in turn, `rounds` times; the warm-up is not counted."""
    found: dict[System, list[Reply]] = {system: [] for system in loads}
    spent: dict[System, list[Used]] = {system: [] for system in loads}
    busy = dict.fromkeys(loads, 0.0)
    if warm_up:
        for system, load in loads.items():
            await system.run(msgspec.structs.replace(load, seconds=warm_up, seed=999))
    for number in range(rounds):
        for system, load in loads.items():
            report(f"round {number + 1} of {rounds}: {system.name}, {load.rate or load.at_once:g} {load.shape}")
            before = system.used()
            replies = await system.run(msgspec.structs.replace(load, seed=load.seed + number))
            spent[system].append(system.used().since(before))
            found[system] += replies
            busy[system] += _span(replies, load.seconds)
            await asyncio.sleep(REST_S)
    return {
        system: _measured(found[system], spent[system], load.seconds * rounds, busy[system])
        for system, load in loads.items()
    }


def _measured(replies: list[Reply], spent: Sequence[Used], seconds: float, busy: float) -> Measured:
    return Measured(stats(replies, seconds, busy), replies, _sum(spent))


def _sum(spent: Sequence[Used]) -> Used:
    last = spent[-1]
    return Used(sum(used.engine_s for used in spent), sum(used.other_s for used in spent), last.memory, last.files)


def _span(replies: Sequence[Reply], seconds: float) -> float:
    lasts = [reply.events[-1] for reply in replies if reply.events]
    return max(seconds, max(lasts) - min(reply.due for reply in replies)) if lasts else seconds
