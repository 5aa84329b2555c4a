"""The process of another worker: it has the plug-in, its settings and the log, and no state of the first one's.

What is asked comes as JSON on standard input, and what the plug-in gives is written to a file (`elsewhere` of
plugin_calls.py).
Hashes of texts have another seed here, so a set of texts has another order.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from parley_client.plugins import EngineJob, Kind, NoVectors, Plugin, Prompt


class _Alone:
    """Implements `Worker`, without an embedder."""

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        raise NoVectors(f"this process has no vectors of {len(texts)} texts")


async def _rewritten(feature: Any, asked: Sequence[Any]) -> list[Any]:
    if hasattr(feature, "begin"):
        feature.begin(_Alone())
    prompts = [feature.rewrite(Prompt(text), decision) for text, decision in asked]
    read = [await one if inspect.isawaitable(one) else one for one in prompts]
    return [[one.prompt, one.instructions] for one in read]


async def _judged(judge: Any, texts: Sequence[str]) -> list[Any]:
    return [{name: float(score) for name, score in one.items()} for one in await judge.scores(list(texts))]


async def _written(engine: Any, jobs: Sequence[Any]) -> list[Any]:
    return ["".join([piece async for piece in engine.write(EngineJob(*job))]) for job in jobs]


_ASKED: dict[Kind, Callable[[Any, Sequence[Any]], Awaitable[list[Any]]]] = {
    Kind.FEATURES: _rewritten,
    Kind.JUDGES: _judged,
    Kind.ENGINES: _written,
}


async def _given(plugin: Plugin, settings: Any, asked: Sequence[Any]) -> list[Any]:
    return await _ASKED[Kind(plugin.kind)](plugin.made(settings), asked)


if __name__ == "__main__":
    point, table, questions = json.loads(sys.stdin.buffer.read())
    Path(sys.argv[1]).write_text(json.dumps(asyncio.run(_given(Plugin(*point), table, questions))))
