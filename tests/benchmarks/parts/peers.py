"""The whole service beside what people would use instead, with the same weights: the demo model, or Gemma 3 270M.

`peers` has the demo model, `peers-gemma` the real one (`make real-model`), with llama.cpp's server as a further peer,
and transformers' own, which is too slow for the open loads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack

from models.files.checkpoint import CheckpointFiles
from tests.benchmarks.chat_load import ChatLoad
from tests.benchmarks.chat_servers import (
    ChatServer,
    CommandServer,
    LiteLlm,
    LlamaCpp,
    ParleyBefore,
    ParleyServer,
    TransformersServe,
    Vllm,
)
from tests.benchmarks.gemma import write_gemma
from tests.benchmarks.load import Reply
from tests.benchmarks.progress import report
from tests.benchmarks.result import Result
from tests.benchmarks.rig import Rig
from tests.benchmarks.scale import Scale
from tests.benchmarks.stats import Figures, stats
from tests.llama_cpp_build import SkippedError

TOKENS = 32
LEVELS = (0.1, 0.25, 0.5, 0.75)
MOST_AT_ONCE = 32
COLUMNS = [
    "load", "server", "tokens/s", "Parley's in its", "failed", "first p50 ms", "p99 ms", "between tokens p50 ms",
    "p99 ms", "processor ms/request", "MB", "start s",
]  # fmt: skip


async def run(rig: Rig, scale: Scale) -> Result:
    """With the demo model."""
    vllm = Vllm(rig, "vLLM's server", CheckpointFiles.find("demo").folder)
    servers = [ParleyServer(rig, "Parley"), vllm, *_before(rig, vllm)]
    return await _measured("peers", servers, scale, [*scale.at_once, *([128] if max(scale.at_once) == 32 else [])])


async def run_gemma(rig: Rig, scale: Scale) -> Result:
    """With Gemma 3 270M; raises `SkippedError` where its package or `gguf` is not installed."""
    gemma = await asyncio.to_thread(write_gemma)
    vllm = Vllm(rig, "vLLM's server", gemma.folder)
    slots = max(scale.at_once)
    llamas = [LlamaCpp(rig, f"llama.cpp {path.stem}", path, slots) for path in gemma.files]
    model = {"model": str(gemma.folder)}
    servers = [
        ParleyServer(rig, "Parley", **model),
        ParleyServer(rig, "Parley int8", quantize="int8", **model),
        *llamas,
        vllm,
        *_before(rig, vllm if vllm.is_installed else llamas[0]),
        TransformersServe(rig, "transformers serve", gemma.folder),
    ]
    return await _measured("peers-gemma", servers, scale, scale.at_once)


def _before(rig: Rig, server: CommandServer) -> list[ChatServer]:
    return [
        LiteLlm(rig, f"LiteLLM before {server.name}", server),
        ParleyBefore(rig, f"Parley before {server.name}", server),
    ]


async def _measured(part: str, servers: Sequence[ChatServer], scale: Scale, at_once: Sequence[int]) -> Result:
    result = Result(part, "The whole service and its peers, chat-shaped load", COLUMNS)
    async with AsyncExitStack() as stack:
        started = await _started(stack, servers, result.notes)
        capacity: dict[ChatServer, float] = {}
        for count in at_once:
            load = ChatLoad(scale.seconds, TOKENS, at_once=count)
            found = await _alternate(started, load, scale, f"{count} at once", result)
            if count <= MOST_AT_ONCE:
                capacity = {server: figures.tokens_per_s / TOKENS for server, figures in found.items()}
        started = [server for server in started if not isinstance(server, TransformersServe)]
        slower = min(capacity[server] for server in started)
        result.notes.append(f"Open loads are shares of {slower:.2f} requests/s, what the slowest does.")
        for level in LEVELS:
            load = ChatLoad(scale.seconds, TOKENS, rate=level * slower)
            await _alternate(started, load, scale, f"open, {level:.0%}", result)
    return result


async def _started(stack: AsyncExitStack, servers: Sequence[ChatServer], notes: list[str]) -> list[ChatServer]:
    """One after the other; a peer that does not start costs the others nothing."""
    started = []
    for server in servers:
        report(f"starting {server.name}")
        try:
            await stack.enter_async_context(server)
        except (SkippedError, RuntimeError) as error:
            notes.append(f"{server.name} is skipped: {str(error).splitlines()[0]}")
            report(notes[-1])
        else:
            users = server.users()
            replies = await users.run(ChatLoad(1.0, TOKENS, at_once=2))  # what is made at a first use
            if any(not reply.failed for reply in replies):
                started.append(server)
            else:
                notes.append(f"{server.name} is skipped: it answers nothing ({users.refusal})")
    return started


async def _alternate(
    servers: Sequence[ChatServer], load: ChatLoad, scale: Scale, label: str, result: Result
) -> dict[ChatServer, Figures]:
    """In turns, `scale.rounds` times; a row each."""
    replies: dict[ChatServer, list[Reply]] = {server: [] for server in servers}
    spent: dict[ChatServer, list[dict[str, float]]] = {server: [] for server in servers}
    busy = dict.fromkeys(servers, 0.0)
    for number in range(scale.rounds):
        for server in servers:
            report(f"{label}, round {number + 1}: {server.name}")
            before = server.processor_s()
            users = server.users()
            found = await users.run(load)
            after = server.processor_s()
            if users.refusal:
                result.notes.append(f"{label}: {server.name} failed an answer: {users.refusal}")
            spent[server].append({name: after[name] - seconds for name, seconds in before.items()})
            replies[server] += found
            ends = [reply.end for reply in found if reply.end is not None]
            busy[server] += max(load.seconds, max(ends, default=0.0) - min((reply.due for reply in found), default=0.0))
    figures = {server: stats(replies[server], load.seconds * scale.rounds, busy[server]) for server in servers}
    for server in servers:
        result.rows.append(_row(label, server, figures, spent[server]))
        report(" | ".join(f"{one:.1f}" if isinstance(one, float) else str(one) for one in result.rows[-1]))
    return figures


def _row(
    label: str, server: ChatServer, figures: dict[ChatServer, Figures], spent: Sequence[dict[str, float]]
) -> list[str | float | int]:
    own, first = figures[server], next(iter(figures.values()))
    each = {name: 1e3 * sum(one[name] for one in spent) / max(1, own.requests) for name in spent[0]}
    ratio = first.tokens_per_s / own.tokens_per_s if own.tokens_per_s else 0.0
    return [
        label, server.name, own.tokens_per_s, ratio, own.failed,
        *(value * 1e3 for value in (own.first_p50, own.first_p99, own.gap_p50, own.gap_p99)),
        ", ".join(f"{name} {value:.1f}" for name, value in each.items()), server.memory() / 1e6, server.start_s,
    ]  # fmt: skip
