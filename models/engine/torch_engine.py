"""The in-process engine: an asyncio interface to a thread that computes."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from models.checkpoints.loading import Checkpoint, CheckpointError
from models.compute import gpu_ways
from models.compute.cache import GIB, PAGE_SIZE, SHARE_OF_FREE_GPU, KVCache, bytes_per_page, pages_that_fit
from models.compute.fused import cache_dtype
from models.compute.pages import PagePool, pages_for
from models.engine.adapters import Adapters, Fetched
from models.engine.probe import probe
from models.engine.runner import Runner, StepTimes
from models.engine.scheduler import Scheduler, StepLimits
from models.engine.speculation.draft_model import DraftModel, check_draft
from models.engine.speculation.drafting import Speculation, SpeculationMode
from models.engine.threads import Threads
from models.engine.worker import Cancelled, EngineThread, Events, Stopped, Submitted
from models.files.adapters import AdapterFiles
from models.interface.generation import EngineStats, Failure, FinishReason, Job, StepRows, Stream, refusal_of
from models.interface.token_stream import TokenStream
from models.machine.freed_memory import large_blocks_returned
from models.structured import ConstraintCompiler
from models.text.detokenizer import Vocabulary
from models.weights.replacing import held_bytes
from models.weights.threads import few_threads

log = logging.getLogger(__name__)
STOP_PATIENCE_S = 30.0
LONE_CHUNK_ON_CPU = 512


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """`max_waiting` jobs beyond those that run may be open; `hang_s` is the longest step before the engine is dead.

    Adapters have up to `adapters_gb` of memory, and those in use once more as much. `draft` is the model that guesses
    with speculation `auto`; without one, and with `lookup`, guesses are looked up in a sequence's own text.
    `overlaps`: start a step before the one before it is read; None: where the device computes on its own.
    `gpu_share`: how much of a GPU's free memory the cache may take where `kv_cache_gb` does not say.
    """

    max_running: int = 128
    max_waiting: int = 4096
    threads: int = 0
    kv_cache_gb: float = 0.0
    pages: int = 0
    hang_s: float = 120.0
    adapters_gb: float = 1.0
    speculation: SpeculationMode = SpeculationMode.OFF
    draft: Checkpoint | None = None
    limits: StepLimits | None = None
    overlaps: bool | None = None
    gpu_share: float = SHARE_OF_FREE_GPU


class TorchEngine:
    """Implements `Engine`. `on_fatal` gets one line when the process can no longer be trusted."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        options: EngineOptions,
        on_fatal: Callable[[str], None] | None = None,
        adapters: Sequence[AdapterFiles] = (),
    ) -> None:
        self._checkpoint = checkpoint
        self._options = options
        self._on_fatal = on_fatal
        self._loop: asyncio.AbstractEventLoop | None = None
        self._open: set[TokenStream] = set()
        self._dead: str | None = None
        self._started = False
        self._ready = asyncio.Event()
        self._watch: asyncio.TimerHandle | None = None
        torch.set_num_threads(1)  # of this thread, whose own would hinder the engine's (checkpoints/loading.py)
        model, dtype, limits = checkpoint.model, cache_dtype(checkpoint.model), options.limits or self._limits()
        self._threads = self._counts()
        one_page = KVCache(model.config, 1, model.device, dtype)
        self._runner = Runner(checkpoint, one_page, PagePool(1, PAGE_SIZE), self._threads.possible)
        pages = self._pages(limits)
        self.pool = PagePool(pages, PAGE_SIZE)
        self._runner.hold(KVCache(model.config, pages, model.device, dtype), self.pool)
        self.scheduler = Scheduler(self.pool, limits, time.monotonic)
        self._adapters = Adapters(
            {files.name: files for files in adapters},
            self._runner.lora,
            torch.empty(0, device=model.device, dtype=model.dtype),
            int(options.adapters_gb * GIB),
            self._fetched,
        )
        self.speculation = self._make_speculation(pages)
        self._constraints = ConstraintCompiler(checkpoint.tokenizer, model.config.vocab_size, checkpoint.eos)
        self._worker = EngineThread(
            runner=self._runner,
            scheduler=self.scheduler,
            adapters=self._adapters,
            constraints=self._constraints,
            speculation=self.speculation,
            vocabulary=Vocabulary(checkpoint.tokenizer),
            eos=checkpoint.eos,
            context_length=checkpoint.context_length,
            threads=self._threads,
            overlaps=model.device.type != "cpu" if options.overlaps is None else options.overlaps,
            prepare=self._prepare,
            deliver=lambda events: self._call(self._deliver, events),
            ready=lambda: self._call(self._ready.set),
            died=lambda line: self._call(self._die, line),
        )
        self._thread = threading.Thread(target=self._worker.run, name="engine", daemon=True)

    @property
    def model_version(self) -> str:
        return self._checkpoint.model_version

    @property
    def adapter_arithmetic(self) -> str:
        """What an adapter's version ends in: workers before it computed such answers in float64 (compute/lora.py)."""
        return "-by-row" if self._checkpoint.model.device.type == "cpu" else ""

    @property
    def context_length(self) -> int:
        return self._checkpoint.context_length

    @property
    def has_room(self) -> bool:
        return len(self._open) < self._options.max_running

    @property
    def stats(self) -> EngineStats:
        running, began = len(self.scheduler.running), self._worker.step_began
        return EngineStats(
            running=running,
            waiting=max(0, len(self._open) - running),
            kv_cache_usage=self.pool.in_use / max(1, self.pool.pages - 1),
            preemptions=self.scheduler.preempted,
            steps=self._runner.times.steps,
            step_rows=StepRows(tuple(self._runner.times.by_rows), self._runner.times.rows),
            step_s=0.0 if began is None else time.monotonic() - began,
        )

    @property
    def is_fused(self) -> bool:
        """Whether the model's forward is the engine's own, instead of transformers'."""
        return self._runner.is_fused

    @property
    def threads(self) -> int:
        """With which a CPU computes; they may change while it does."""
        return self._threads.count

    @property
    def cache_tokens(self) -> int:
        """How many tokens of all answers together the KV cache has room for."""
        return (self.pool.pages - 1) * self.pool.size

    @property
    def adapters(self) -> tuple[str, ...]:
        """The names of its adapters."""
        return self._adapters.names

    def adapter_faults(self) -> list[str]:
        """Why adapters cannot be used, a line each. Reads all of them; for before the start."""
        return self._adapters.faults()

    @property
    def times(self) -> StepTimes:
        return self._runner.times

    def submit(self, jobs: Sequence[Job]) -> list[Stream]:
        streams: list[Stream] = []
        accepted: list[tuple[Job, TokenStream]] = []
        room = self._options.max_running + self._options.max_waiting - len(self._open)
        for job in jobs:
            stream = TokenStream(self._cancel)
            streams.append(stream)
            if self._dead is not None:
                stream.abandon(self._dead)
            elif failure := self._refusal(job, room - len(accepted)):
                stream.push(failure)
            else:
                accepted.append((job, stream))
        if accepted:
            self._open.update(stream for _, stream in accepted)
            self._worker.inbox.put(Submitted(accepted))
        return streams

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread.start()
        await self._ready.wait()
        if self._dead is not None:
            raise CheckpointError(self._dead)
        self._started = True
        self._check_step()

    async def stop(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        died, self._dead = self._dead, self._dead or "the engine has stopped"
        self._worker.inbox.put(Stopped())
        if self._thread.is_alive() and died is None:  # a hung thread never ends
            await asyncio.to_thread(self._thread.join, STOP_PATIENCE_S)
        for stream in self._open:
            stream.abandon()
        self._open.clear()

    def _prepare(self) -> None:
        """Runs in the engine's thread, before the first job."""
        begun = time.perf_counter()
        device = self._checkpoint.model.device
        if device.type == "cuda":
            gpu_ways.begin(device)
        probe(self._runner, self.context_length)
        self._runner.warm_up(self.scheduler.limits.max_running, self.context_length)
        with large_blocks_returned():
            self._constraints.prepare()
        log.info("%s passed its check and is warm after %.1f s", self.model_version, time.perf_counter() - begun)

    def _limits(self) -> StepLimits:
        """A CPU computes no more tokens a second in a longer step, and who arrives meanwhile waits for its end."""
        limits = StepLimits(self._options.max_running)
        if self._checkpoint.model.device.type == "cpu":
            limits.lone_chunk = LONE_CHUNK_ON_CPU
        return limits

    def _counts(self) -> Threads:
        """As they are set, or those that were measured for this model, which may turn out to be wrong."""
        cores, measured = len(os.sched_getaffinity(0)), self._checkpoint.threads
        few = few_threads()
        if self._options.threads or measured not in (few, cores):
            count = self._options.threads or measured or few
            return Threads(count, count, count)
        return Threads(few, cores, measured)

    @property
    def _draft(self) -> Checkpoint | None:
        """The draft model, if there is one."""
        return self._options.draft if self._options.speculation is SpeculationMode.AUTO else None

    def _make_speculation(self, pages: int) -> Speculation | None:
        draft = self._draft
        if self._options.speculation is SpeculationMode.OFF:
            return None
        if draft is None:
            return Speculation(self.pool)
        check_draft(draft, self._checkpoint)
        return Speculation(self.pool, DraftModel(draft, pages, self.pool, self._checkpoint.model.config.vocab_size))

    def _refusal(self, job: Job, room: int) -> Failure | None:
        knows_adapter = not job.adapter or self._adapters.knows(job.adapter)
        if failure := refusal_of(job, room, self.context_length, knows_adapter=knows_adapter):
            return failure
        vocabulary = self._checkpoint.model.config.vocab_size
        parts = [part for part in (job.prompt, job.generated) if part]
        if min(map(min, parts)) < 0 or max(map(max, parts)) >= vocabulary:
            line = f"a token id is not in the model's vocabulary of {vocabulary}"
            return Failure(len(job.generated), "invalid_request", line)
        return None

    def _cancel(self, stream: TokenStream, reason: FinishReason) -> None:
        self._worker.inbox.put(Cancelled(stream, reason))

    def _fetched(self, fetched: Fetched) -> None:
        self._worker.inbox.put(fetched)

    def _call(self, call: Callable[..., None], *arguments: object) -> None:
        """Hand events from the engine's thread to the event loop, which may be closed when the process ends."""
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(call, *arguments)
        except RuntimeError:
            log.info("the event loop is closed; events of the engine are dropped")

    def _deliver(self, events: Events) -> None:
        for stream, event in events:
            if stream in self._open:
                stream.push(event)
                if stream.ended:
                    self._open.discard(stream)

    def _check_step(self) -> None:
        """The watchdog: a step that takes this long will never end, and a thread cannot be killed."""
        assert self._loop is not None
        began = self._worker.step_began
        if began is not None and time.monotonic() - began > self._options.hang_s:
            self._die(f"the engine hangs: one step has been running for more than {self._options.hang_s:g} s")
            return
        self._watch = self._loop.call_later(min(1.0, self._options.hang_s / 4), self._check_step)

    def _die(self, line: str) -> None:
        if self._dead is not None:
            return
        self._dead = line
        for stream in self._open:
            stream.abandon(line)
        self._open.clear()
        self._ready.set()
        if self._started and self._on_fatal is not None:
            self._on_fatal(line)

    def _pages(self, limits: StepLimits) -> int:
        model, spare = self._checkpoint.model, 0
        if model.device.type == "cuda" and not (self._options.pages or self._options.kv_cache_gb):
            step = partial(self._runner.compute_largest, limits.lone_chunk, self.context_length, limits.max_running)
            spare = gpu_ways.memory_of(model.device, step)
        context = pages_for(self.context_length, PAGE_SIZE)
        wanted = 2 * context * self._options.max_running
        page = bytes_per_page(model.config, cache_dtype(model))
        if draft := self._draft:
            page += bytes_per_page(draft.model.config, cache_dtype(draft.model))  # its cache has the same pages
        pages = self._options.pages or pages_that_fit(
            page,
            model.device,
            self._options.kv_cache_gb,
            self._options.gpu_share,
            wanted,
            context=context,
            weights=held_bytes(model),
            spare=spare,
        )
        if pages < context + 1:
            tokens = (pages - 1) * PAGE_SIZE
            raise CheckpointError(
                f"the KV cache has room for {tokens} tokens and one answer may have {self.context_length}: "
                "give it more memory (kv_cache_gb) or lower context_length"
            )
        return pages
