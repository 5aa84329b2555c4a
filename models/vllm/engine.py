"""An engine that uses vLLM's AsyncLLM: vLLM's processes compute, on one GPU or many; this module has the jobs and
streams.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from models.checkpoints import Checkpoint, CheckpointError
from models.detokenizer import Vocabulary
from models.generation import ConstraintError, EngineStats, Failure, FinishReason, Job, Stream
from models.token_stream import TokenStream
from models.unexpected import type_and_line
from models.vllm.parameters import prompt_of, sampling_of
from models.vllm.reading import Reading

log = logging.getLogger(__name__)

ABSENT = "engine=vllm needs vLLM: install Parley with its extra `vllm`, in an environment of its own"
GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class VllmOptions:
    """`more` are additional `AsyncEngineArgs`, which override."""

    max_running: int = 64
    max_waiting: int = 4096
    dtype: str = "auto"
    kv_cache_gb: float = 0.0
    more: Mapping[str, Any] = field(default_factory=dict)

    def arguments(self, model: str, context_length: int) -> dict[str, Any]:
        """The arguments of `AsyncEngineArgs`."""
        arguments: dict[str, Any] = {
            "model": model,
            "max_model_len": context_length,
            "max_num_seqs": self.max_running,
            "dtype": self.dtype,
            "scheduling_policy": "priority",
            "max_logprobs": 20,
        }
        if self.kv_cache_gb:
            arguments["kv_cache_memory_bytes"] = int(self.kv_cache_gb * GIB)
        return arguments | dict(self.more)


class VllmEngine:
    """Implements `models.generation.Engine`. `llm` is an `AsyncLLM`; `on_fatal` is called when it has died."""

    def __init__(
        self, llm: Any, checkpoint: Checkpoint, options: VllmOptions, on_fatal: Callable[[str], None] | None = None
    ) -> None:
        self._llm = llm
        self._checkpoint = checkpoint
        self._options = options
        self._on_fatal = on_fatal
        self._vocabulary = Vocabulary(checkpoint.tokenizer)
        self._tasks: dict[TokenStream, asyncio.Task[None]] = {}
        self._reasons: dict[TokenStream, FinishReason] = {}
        self._dead: str | None = None
        self._count = 0

    @property
    def model_version(self) -> str:
        """Another engine computes other logits, so an answer does not move between the two."""
        return f"{self._checkpoint.model_version}+vllm"

    @property
    def context_length(self) -> int:
        return self._checkpoint.context_length

    @property
    def has_room(self) -> bool:
        return len(self._tasks) < self._options.max_running

    @property
    def stats(self) -> EngineStats:
        running = min(len(self._tasks), self._options.max_running)
        return EngineStats(running=running, waiting=len(self._tasks) - running)

    def submit(self, jobs: Sequence[Job]) -> list[Stream]:
        return [self._submit(job) for job in jobs]

    async def start(self) -> None:
        await self._llm.check_health()

    async def stop(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._llm.shutdown()

    def _submit(self, job: Job) -> TokenStream:
        stream = TokenStream(self._cancel)
        reading = Reading(job, self._vocabulary, self._checkpoint.eos, self._limit(job))
        if self._dead is not None:
            stream.abandon(self._dead)
        elif failure := self._refusal(job):
            stream.push(failure)
        elif end := reading.begin():
            stream.push(end)
        else:
            self._count += 1
            task = asyncio.create_task(self._answer(job, stream, reading, f"{job.id}#{self._count}"))
            self._tasks[stream] = task
            task.add_done_callback(lambda done: self._over(done, stream, reading))
        return stream

    async def _answer(self, job: Job, stream: TokenStream, reading: Reading, request_id: str) -> None:
        from vllm.exceptions import VLLMValidationError  # type: ignore[import-not-found,unused-ignore]
        from vllm.v1.engine.exceptions import (  # type: ignore[import-not-found,unused-ignore]
            EngineDeadError,
        )

        try:
            # a grammar of tools takes its time to write
            sampling = await asyncio.to_thread(sampling_of, job, self._checkpoint.eos, reading.room)
            outputs = self._llm.generate(prompt_of(job), sampling, request_id, priority=int(job.priority))
            async with aclosing(outputs):  # vLLM aborts a request whose output is not read to the end
                async for output in outputs:
                    for event in reading.read(output):
                        stream.push(event)
                    if reading.ended:
                        return
        except EngineDeadError as error:
            self._die(f"vLLM's engine has died: {error}".splitlines()[0])
        except ConstraintError as error:
            stream.push(reading.fail("invalid_request", f"tools: {error}"))
        except (VLLMValidationError, ValueError) as error:
            log.warning("vLLM refuses answer %r: %s", job.id, type_and_line(error))
            field = getattr(error, "parameter", None)
            named = f"{field}: " if isinstance(field, str) and field.isidentifier() else ""
            stream.push(reading.fail("invalid_request", f"{named}the model's engine refuses the request"))

    def _over(self, task: asyncio.Task[None], stream: TokenStream, reading: Reading) -> None:
        """The task has ended, even if it never began."""
        self._tasks.pop(stream, None)
        reason = self._reasons.pop(stream, None)
        if stream.ended or self._dead is not None:
            return
        if task.cancelled():
            if reason is None:
                stream.abandon()
            else:
                stream.push(reading.end(reason))
            return
        error = task.exception()
        why = "it ended without a reason" if error is None else type_and_line(error)
        log.warning("answer of vLLM failed: %s", why)
        stream.push(reading.fail("engine_error", "the model's engine failed in this answer"))

    def _cancel(self, stream: TokenStream, reason: FinishReason) -> None:
        if (task := self._tasks.get(stream)) is not None:
            self._reasons.setdefault(stream, reason)
            task.cancel()

    def _die(self, line: str) -> None:
        if self._dead is None:
            self._dead = line
            for stream in self._tasks:
                stream.abandon(line)
            if self._on_fatal is not None:
                self._on_fatal(line)

    def _limit(self, job: Job) -> int:
        return min(job.max_tokens, self.context_length - len(job.prompt))

    def _refusal(self, job: Job) -> Failure | None:
        generated = len(job.generated)
        if len(self._tasks) >= self._options.max_running + self._options.max_waiting:
            return Failure(generated, "overloaded", "the engine's queue is full; try again later")
        if job.adapter:
            return Failure(generated, "model_not_found", f"there is no adapter {job.adapter}")
        if not job.prompt:
            return Failure(generated, "invalid_request", "the prompt has no tokens")
        if len(job.prompt) >= self.context_length:
            line = f"the prompt has {len(job.prompt)} tokens; the model takes {self.context_length - 1} at most"
            return Failure(generated, "prompt_too_long", line)
        return None


def create_vllm_engine(
    model: str, checkpoint: Checkpoint, options: VllmOptions, on_fatal: Callable[[str], None] | None = None
) -> VllmEngine:
    """Load `model`, a folder or a name, into vLLM's processes; `checkpoint` is the rest of it, without weights.

    Raises `CheckpointError` with one line if vLLM is missing or rejects it.
    """
    try:
        from vllm.engine.arg_utils import AsyncEngineArgs  # type: ignore[import-not-found,unused-ignore]
        from vllm.v1.engine.async_llm import AsyncLLM  # type: ignore[import-not-found,unused-ignore]
    except ModuleNotFoundError as error:
        raise CheckpointError(f"{ABSENT} ({error})") from None
    try:
        arguments = AsyncEngineArgs(**options.arguments(model, checkpoint.context_length))
        llm = AsyncLLM.from_engine_args(arguments)
    except Exception as error:
        line = " ".join(str(error).split())[:300]
        raise CheckpointError(f"model {model}: vLLM cannot serve it: {line}") from error
    return VllmEngine(llm, checkpoint, options, on_fatal)
