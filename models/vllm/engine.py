"""An engine that uses vLLM's AsyncLLM: vLLM's processes compute, on one GPU or many; this module has the jobs and
streams.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from models.checkpoints.loading import Checkpoint, CheckpointError
from models.files.errors import first_line
from models.interface.fair_slots import payers_of
from models.interface.generation import ConstraintError, EngineStats, Failure, FinishReason, Job, Stream, refusal_of
from models.interface.prompt_order import PendingPrompt, PromptBacklog
from models.interface.token_stream import TokenStream
from models.interface.unexpected import type_and_line
from models.structured.compiler import ConstraintCompiler
from models.structured.grammar import TOO_SLOW
from models.structured.matcher import Matcher
from models.text.detokenizer import Vocabulary
from models.vllm.figures import Figures
from models.vllm.leash import hold
from models.vllm.parameters import prompt_of, sampling_of
from models.vllm.reading import Reading

if TYPE_CHECKING:
    from models.files.adapters import AdapterFiles

log = logging.getLogger(__name__)

ABSENT = "engine=vllm needs vLLM: install Parley with its extra `vllm`, in an environment of its own"
GIB = 1 << 30
PROCESSOR = "models.vllm.processor:ParleyDraws"
ALIVE_S = 0.5
"""How often an idle engine is asked whether it lives."""
LONGEST_COMPILE_S = 1.0
"""vLLM's process compiles a constraint again, and answers nobody meanwhile."""
MOST_LORAS = 16
"""Adapters in one step of vLLM; further ones are in memory and wait for their turn."""
_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""Of adapters, as vLLM knows them."""


@dataclass(frozen=True, slots=True)
class VllmOptions:
    """`more` are additional `AsyncEngineArgs`, which override."""

    max_running: int = 128
    max_waiting: int = 4096
    dtype: str = "auto"
    kv_cache_gb: float = 0.0
    adapters: Sequence[AdapterFiles] = ()
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def are_drawn_here(self) -> bool:
        """Whether Parley's sampler draws inside vLLM; vLLM has no such place where it speculates."""
        return not self.more.get("speculative_config")

    def arguments(self, model: str, context_length: int, *, on_cpu: bool = False) -> dict[str, Any]:
        """The arguments of `AsyncEngineArgs`."""
        arguments: dict[str, Any] = {
            "model": model,
            "max_model_len": context_length,
            "max_num_seqs": self.max_running,
            "dtype": self.dtype,
            "scheduling_policy": "priority",
            "max_logprobs": 20,
        }
        if self.are_drawn_here:
            arguments["logits_processors"] = [PROCESSOR]
        if self.adapters:
            count, most = len(self.adapters), max(one.rank for one in self.adapters)
            rank = next((rank for rank in _RANKS if rank >= most), most)
            # On CPUs vLLM computes an answer without an adapter with the one in its last place: that one stays empty.
            places = count + 1 if on_cpu else min(count, MOST_LORAS)
            arguments |= {"enable_lora": True, "max_lora_rank": rank, "max_loras": places}
            arguments["max_cpu_loras"] = max(count, places)
        if self.kv_cache_gb:
            arguments["kv_cache_memory_bytes"] = int(self.kv_cache_gb * GIB)
        return arguments | dict(self.more)


class VllmEngine:
    """Implements `Engine`. `llm` is an `AsyncLLM`; `on_fatal` is called when it has died; `figures`
    are those that vLLM tells.
    """

    def __init__(
        self,
        llm: Any,
        checkpoint: Checkpoint,
        options: VllmOptions,
        on_fatal: Callable[[str], None] | None = None,
        figures: Figures | None = None,
    ) -> None:
        self._llm = llm
        self._figures = figures or Figures()
        self._checkpoint = checkpoint
        self._options = options
        self._on_fatal = on_fatal
        self._vocabulary = Vocabulary(checkpoint.tokenizer)
        rows = checkpoint.config.get_text_config().vocab_size
        self._compiler = ConstraintCompiler(checkpoint.tokenizer, rows, checkpoint.eos)
        self._adapters = {one.name: (number, one) for number, one in enumerate(options.adapters, 1)}
        self._watching: asyncio.Task[None] | None = None
        self._tasks: dict[TokenStream, asyncio.Task[None]] = {}
        self._reasons: dict[TokenStream, FinishReason] = {}
        self._dead: str | None = None
        self._count = 0
        self._backlog = PromptBacklog()

    @property
    def model_version(self) -> str:
        """Another engine, numeric type, kind of device or number of devices computes other logits, so an answer does
        not move between them.
        """
        config = self._llm.vllm_config
        dtype, device = str(config.model_config.dtype).removeprefix("torch."), config.device_config.device_type
        parts = ["vllm", dtype, device]
        if (degree := config.parallel_config.tensor_parallel_size) > 1:
            parts.append(f"tp{degree}")
        if not self._options.are_drawn_here:
            parts.append("speculative")
        return f"{self._checkpoint.model_version}+{'-'.join(parts)}"

    @property
    def context_length(self) -> int:
        return self._checkpoint.context_length

    @property
    def has_room(self) -> bool:
        return len(self._tasks) < self._options.max_running

    @property
    def stats(self) -> EngineStats:
        asked, figures = len(self._tasks), self._figures
        # What vLLM has said may be a step old: what it has not seen yet is computed if there is room for it.
        waiting = min(asked, max(asked - self._options.max_running, figures.waiting))
        return EngineStats(
            running=asked - waiting,
            waiting=waiting,
            kv_cache_usage=figures.kv_cache_usage,
            preemptions=figures.preemptions,
            steps=figures.steps,
        )

    def submit(self, jobs: Sequence[Job]) -> list[Stream]:
        return [self._submit(job) for job in jobs]

    async def start(self) -> None:
        await self._llm.check_health()
        if self._options.are_drawn_here:
            await asyncio.to_thread(self._compiler.prepare)
        self._watching = asyncio.create_task(self._watch())

    async def stop(self) -> None:
        tasks = [*self._tasks.values(), *filter(None, [self._watching])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._compiler.stop()
        self._llm.shutdown()

    async def _watch(self) -> None:
        """Notice a dead engine even if nothing is asked of it."""
        from vllm.v1.engine.exceptions import (  # type: ignore[import-not-found,unused-ignore]
            EngineDeadError,
        )

        while self._dead is None:
            await asyncio.sleep(ALIVE_S)
            try:
                await self._llm.check_health()
            except EngineDeadError as error:
                self._die(f"vLLM's engine has died: {error}".splitlines()[0])

    def _submit(self, job: Job) -> TokenStream:
        stream = TokenStream(self._cancel)
        reading = Reading(job, self._vocabulary, self._checkpoint.eos, self._limit(job))
        if self._dead is not None:
            stream.abandon(self._dead)
        elif failure := self._refusal(job):
            stream.push(failure)
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

        prompt = PendingPrompt(self._backlog, payers_of(job.tenant, job.user), len(job.prompt) + len(job.generated))
        try:
            if (end := reading.begin(await self._matcher(job))) is not None:
                stream.push(end)
                return
            here = self._options.are_drawn_here
            # a grammar of tools takes its time to write
            sampling = await asyncio.to_thread(sampling_of, job, self._checkpoint.eos, reading.room, is_drawn_here=here)
            turn = int(1000 * prompt.turn(time.monotonic(), job.priority))  # vLLM takes a whole number
            outputs = self._llm.generate(
                prompt_of(job), sampling, request_id, priority=turn, lora_request=self._lora(job)
            )
            async with aclosing(outputs):  # vLLM aborts a request whose output is not read to the end
                async for output in outputs:
                    prompt.end()
                    for event in reading.read(output):
                        stream.push(event)
                    if reading.ended:
                        return
        except EngineDeadError as error:
            self._die(f"vLLM's engine has died: {error}".splitlines()[0])
        except ConstraintError as error:
            # The message may quote the constraint, which is user data: it goes to the sender only.
            field = "tools" if job.tools is not None else "response_format"
            log.warning("answer %r failed: its %s cannot be followed", job.id, field)
            stream.push(reading.fail("invalid_request", f"{field}: {first_line(error)}"))
        except (VLLMValidationError, ValueError) as error:
            log.warning("vLLM refuses answer %r: %s", job.id, type_and_line(error))
            parameter = getattr(error, "parameter", None)
            named = f"{parameter}: " if isinstance(parameter, str) and parameter.isidentifier() else ""
            stream.push(reading.fail("invalid_request", f"{named}the model's engine refuses the request"))
        finally:
            prompt.end()

    async def _matcher(self, job: Job) -> Matcher | None:
        """Follows the job's constraint from its beginning; raises `ConstraintError`."""
        if job.constraint is None or not self._options.are_drawn_here:
            return None
        asked = asyncio.wrap_future(self._compiler.ask(job.constraint, job.user))
        try:
            async with asyncio.timeout(LONGEST_COMPILE_S):
                return (await asked).copy()
        except TimeoutError:
            raise ConstraintError(TOO_SLOW) from None

    def _lora(self, job: Job) -> Any:
        if not job.adapter:
            return None
        from vllm.lora.request import LoRARequest  # type: ignore[import-not-found,unused-ignore]

        number, files = self._adapters[job.adapter]
        return LoRARequest(files.version, number, str(files.folder))

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
        room = self._options.max_running + self._options.max_waiting - len(self._tasks)
        return refusal_of(job, room, self.context_length, knows_adapter=job.adapter in self._adapters)


def create_vllm_engine(
    model: str, checkpoint: Checkpoint, options: VllmOptions, on_fatal: Callable[[str], None] | None = None
) -> VllmEngine:
    """Load `model`, a folder or a name, into vLLM's processes; `checkpoint` is the rest of it, without weights.

    Raises `CheckpointError` with one line if vLLM is missing or rejects it.
    """
    try:
        from vllm.engine.arg_utils import AsyncEngineArgs  # type: ignore[import-not-found,unused-ignore]
        from vllm.platforms import current_platform  # type: ignore[import-not-found,unused-ignore]
        from vllm.v1.engine.async_llm import AsyncLLM  # type: ignore[import-not-found,unused-ignore]
    except ModuleNotFoundError as error:
        raise CheckpointError(f"{ABSENT} ({error})") from None
    try:
        hold()
        # vLLM 0.30 and later have a second runner, which takes processors of another kind.
        os.environ.setdefault("VLLM_USE_V2_MODEL_RUNNER", "0")
        arguments = AsyncEngineArgs(
            **options.arguments(model, checkpoint.context_length, on_cpu=current_platform.is_cpu())
        )
        figures = Figures()
        llm = AsyncLLM.from_engine_args(arguments, stat_loggers=figures.loggers())
    except Exception as error:
        line = " ".join(str(error).split())[:300]
        raise CheckpointError(f"model {model}: vLLM cannot serve it: {line}") from error
    return VllmEngine(llm, checkpoint, options, on_fatal, figures)
