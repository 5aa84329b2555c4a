"""Engines of other packages: `[models.NAME] engine = "..."` of the policy.

A model of such an engine reads messages and writes text. Its tokens here are the bytes of that text, so a successor
knows from the log what is written, and gives it back as `written`. It gets no tools, constraints or adapters: a request
that needs them is refused, as with any model that does not have them.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from parley_client.plugins import Engine, EngineJob, Plugin, PluginError, Refused

from app.plugins.running import PluginFailedError, PluginRoom
from models.interface.generation import (
    Delta,
    End,
    EngineStats,
    Failure,
    FinishReason,
    GenerationDefaults,
    Job,
    Stream,
    Usage,
    refusal_of,
)
from models.interface.token_stream import TokenStream
from models.remote.answer import BYTES_PER_ASKED_TOKEN, SLACK_BYTES, count_of, text_of
from models.remote.prompts import RemotePrompts
from models.served.registry import ServedModel
from models.text.detokenizer import StopStrings

if TYPE_CHECKING:
    from app.serving.loading import WantedModel

_MOST_RUNNING = 1024
_OVER = object()


def plugged_models(plugin: Plugin, wanted: WantedModel, _on_fatal: object) -> list[ServedModel]:
    """Raises `PluginError`."""
    engine: Engine = plugin.made(dict(wanted.spec.settings))
    try:
        version, context, continues = str(engine.version), int(engine.context_length), bool(engine.continues)
    except (AttributeError, TypeError, ValueError) as error:
        raise PluginError(f"the plug-in {plugin} is no engine: {type(error).__name__}: {error}") from None
    prompts = RemotePrompts(wanted.settings.conversation_turns, context)
    served = PluggedEngine(PluginRoom(plugin), engine, version, context)
    return [ServedModel(served, prompts, GenerationDefaults(), wanted.names, text_of, continues=continues)]


class PluggedEngine:
    """Implements `models.interface.generation.Engine`."""

    def __init__(self, room: PluginRoom, engine: Engine, version: str, context_length: int) -> None:
        self.model_version, self.context_length = version, context_length
        self._room, self._engine = room, engine
        self._running: dict[asyncio.Task[None], TokenStream] = {}

    @property
    def has_room(self) -> bool:
        return len(self._running) < _MOST_RUNNING

    @property
    def stats(self) -> EngineStats:
        return EngineStats(running=len(self._running))

    def submit(self, jobs: Sequence[Job]) -> list[Stream]:
        return [self._begun(job) for job in jobs]

    async def start(self) -> None:
        return None

    async def stop(self) -> None:
        for task, stream in [*self._running.items()]:
            task.cancel()
            stream.abandon()
        await self._room.close(self._engine.close)

    def _begun(self, job: Job) -> TokenStream:
        writing = _Writing(job)
        refused = refusal_of(job, _MOST_RUNNING - len(self._running), self.context_length, knows_adapter=False)
        if refused is not None:
            writing.stream.push(refused)
            return writing.stream
        task = asyncio.get_running_loop().create_task(self._write(writing), name=f"answer {job.id}")
        self._running[task] = writing.stream
        task.add_done_callback(lambda done: self._running.pop(done, None) and None)
        return writing.stream

    async def _write(self, writing: _Writing) -> None:
        """Its pieces one by one, each within the bound of a call, until the answer is over or stopped."""
        pieces: Any = None
        try:
            pieces = await self._room.call(partial(self._engine.write, writing.described()))
            while not writing.is_over:
                piece = await self._room.call(partial(anext, pieces, _OVER))
                if piece is _OVER:
                    writing.end(FinishReason.STOP)
                elif not isinstance(piece, str):
                    writing.fail(f"the plug-in {self._room.plugin.name} wrote what is no text")
                elif piece and not writing.is_over:
                    writing.add(piece)
                    await writing.stream.drained(1 << 20)
        except (PluginFailedError, Refused) as error:
            writing.fail(str(error).partition("\n")[0])
        finally:
            if hasattr(pieces, "aclose"):
                self._room.begin(pieces.aclose)


class _Writing:
    """One answer."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self.stream = TokenStream(lambda _stream, reason: self.end(reason))
        self._stops = StopStrings(job.stop)
        self._tokens = list(job.generated)
        self._most = BYTES_PER_ASKED_TOKEN * job.max_tokens + SLACK_BYTES

    @property
    def is_over(self) -> bool:
        return self.stream.ended

    def described(self) -> EngineJob:
        """The job as the plug-in gets it."""
        said: dict[str, Any] = json.loads(bytes(self._job.prompt))
        messages = said.get("messages") or [{"role": "user", "content": said.get("prompt", "")}]
        plain = [{"role": str(one["role"]), "content": str(one["content"])} for one in messages]
        written, sampling = bytes(self._job.generated).decode(errors="replace"), self._job.sampling
        how = self._job.max_tokens, sampling.temperature, sampling.top_p, sampling.seed
        return EngineJob(plain, written, *how, self._job.stop, self._job.user)

    def add(self, piece: str) -> None:
        shown = self._stops.add(piece.encode(errors="replace").decode())
        tokens = tuple(shown.encode())
        if tokens:
            self.stream.push(Delta(len(self._tokens), tokens, shown))
            self._tokens += tokens
        if self._stops.stopped:
            self.end(FinishReason.STOP)
        elif len(self._tokens) > self._most:
            self.end(FinishReason.LENGTH)

    def end(self, reason: FinishReason) -> None:
        if not self.is_over:
            usage = Usage(count_of(self._job.prompt), count_of(self._tokens))
            rest = "" if self._stops.stopped or reason is not FinishReason.STOP else self._stops.held
            self.stream.push(End(len(self._tokens), reason, usage, rest))

    def fail(self, why: str) -> None:
        if not self.is_over:
            self.stream.push(Failure(len(self._tokens), "engine_error", why))
