"""Run one step: pack its slices, call the model once, draw the tokens."""

from __future__ import annotations

import logging
import time
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from models.checkpoints.loading import Checkpoint
from models.compute.attention import Context
from models.compute.batch import Group, StepInputs, pack, tensor_of
from models.compute.cache import KVCache
from models.compute.decode_batch import Steady
from models.compute.fused import lean
from models.compute.gpu_ways import why_no_paged_chunks, why_no_paged_kernel
from models.compute.graphs import DecodeGraphs
from models.compute.lora import Lora
from models.compute.model_attention import use_paged_attention
from models.compute.pages import PagePool, pages_for
from models.drawing.sampler import Draw, Drawn, Token, sample
from models.engine.prompt_scores import PromptScores
from models.engine.sequence import ScheduledChunk
from models.files.architectures import rope_depends_on_length
from models.files.errors import first_line
from models.interface.generation import STEP_ROWS, Sampling
from models.weights.replacing import lay_out
from models.weights.rows import keep_rows_alike

log = logging.getLogger(__name__)

WARM_UP = (1, 16, 256)  # tokens
WARM_UP_DRAWS = (
    Sampling(temperature=0.0),
    Sampling(),
    Sampling(top_p=0.9),
    Sampling(top_p=0.9, top_k=8, logprobs=2),
)


@dataclass(slots=True)
class StepTimes:
    """Where the time went, in seconds; for metrics and the benchmark. `followed`: steps that were started early.
    `by_rows`: steps by their sequences, up to 1, 2, 4 and so on; `rows`: the sequences of all steps.
    """

    steps: int = 0
    rows: int = 0
    by_rows: list[int] = field(default_factory=lambda: [0] * len(STEP_ROWS))
    followed: int = 0
    tokens: int = 0
    forward: float = 0.0
    total: float = 0.0

    def clear(self) -> None:
        self.steps, self.followed, self.tokens, self.forward, self.total = 0, 0, 0, 0.0, 0.0
        self.rows, self.by_rows = 0, [0] * len(STEP_ROWS)

    def count(self, rows: int) -> None:
        self.steps += 1
        self.rows += rows
        self.by_rows[bisect_left(STEP_ROWS, rows)] += 1


@dataclass(frozen=True, slots=True)
class Step:
    """A step that has been started: what it computes and draws. The result may still be on its way from the device.

    `draws`: which slices draw a token, and after how many tokens of their draft; in the order of `drawn`.
    """

    slices: Sequence[ScheduledChunk]
    draws: Sequence[tuple[ScheduledChunk, int]]
    drawn: Drawn | None
    began: float
    scores: PromptScores | None = None

    def read(self) -> list[tuple[ScheduledChunk, list[Token]]]:
        """For every slice, its next token and the one after each token of its draft; waits for them."""
        if self.drawn is None:
            return []
        drawn = list(zip(self.draws, self.drawn.read(), strict=True))
        if any(offset for _, offset in self.draws):
            drawn.sort(key=lambda one: one[0][1])
        tokens: dict[int, tuple[ScheduledChunk, list[Token]]] = {}
        for (part, _), token in drawn:
            tokens.setdefault(id(part), (part, []))[1].append(token)
        return list(tokens.values())


class Runner:
    def __init__(self, checkpoint: Checkpoint, cache: KVCache, pool: PagePool, threads: Sequence[int] = (1,)) -> None:
        """`threads`: by which numbers of them a CPU may compute."""
        self.model: Any = checkpoint.model
        use_paged_attention(self.model)
        self.device: torch.device = self.model.device
        self.cache = cache
        self.times = StepTimes()
        self._lean = lean(self.model, threads=threads)
        if self._lean is None:
            lay_out(self.model)
            if self.device.type == "cpu":
                keep_rows_alike(self.model, threads)
        forward = self._lean.forward if self._lean is not None and self.device.type == "cpu" else None
        self.lora = Lora(self.model, forward, threads)
        self._pool = pool
        self._by_kernels = self._lean is not None and self._lean.by_kernels
        self._graphs: DecodeGraphs | None = None
        self._steady: Steady | None = None

    @cached_property
    def _kernel(self) -> bool:
        """Whether a GPU's kernel reads pages where they are. Tried by the thread that computes."""
        if self.device.type != "cuda":
            return False
        reason = why_no_paged_kernel(self.cache, self.model.config.num_attention_heads)
        if reason is not None:
            log.warning("steps run without Triton's kernel and CUDA graphs, which costs time: %s", reason)
        return reason is None

    @cached_property
    def _paged_chunks(self) -> bool:
        """Whether a GPU reads the pages of chunks where they are."""
        if not self._kernel or getattr(self.model.config, "attn_logit_softcapping", None):
            return False
        reason = why_no_paged_chunks(self.cache, self.model.config.num_attention_heads)
        if reason is not None:
            log.info("the pages of a prompt are gathered for each of its chunks: %s", reason)
        return reason is None

    @torch.inference_mode()
    def start(self, slices: Sequence[ScheduledChunk]) -> Step:
        """Compute `slices`. A GPU computes asynchronously; reading the step waits for it."""
        began = time.perf_counter()
        return self._start(slices, self.pack(slices), began)

    @torch.inference_mode()
    def advance(self, step: Step, slices: Sequence[ScheduledChunk]) -> Step:
        """Compute the tokens after those that `step` draws, before they have been read. `slices` are those that drew in
        it.
        """
        began = time.perf_counter()
        batch = self._packed(slices)
        assert step.drawn is not None
        index_of = {id(part.sequence): at for at, (part, _) in enumerate(step.draws)}
        drawn = tensor_of([index_of[id(part.sequence)] for part in batch.order], self.device)
        batch.tokens.copy_(step.drawn.tokens[drawn])
        self.times.followed += 1
        return self._start(slices, batch, began)

    def _start(self, slices: Sequence[ScheduledChunk], batch: StepInputs, began: float) -> Step:
        packed = time.perf_counter()
        logits = self._logits(batch)
        self.times.forward += time.perf_counter() - packed
        self.times.count(len(slices))
        self.times.tokens += batch.count
        drawn = sample(logits[: len(batch.draws)], _drawing(batch)) if batch.draws else None
        scores = PromptScores(logits[len(batch.draws) :], batch.scored) if batch.scored else None
        return Step(slices, batch.draws, drawn, began, scores)

    def _logits(self, batch: StepInputs) -> Tensor:
        self.lora.route(batch.order)
        try:
            # a graph was captured without adapters
            logits = self._graphs.run(batch) if self._graphs is not None and not self.lora.active else None
            return self.forward(batch) if logits is None else logits
        finally:
            self.lora.route(())

    def pack(self, slices: Sequence[ScheduledChunk]) -> StepInputs:
        batch = None if self._steady is None else self._steady.next(slices)
        if batch is None:
            batch = self._packed(slices)
            self._steady = Steady.of(batch, slices, self._pool.size)
        return batch

    def _packed(self, slices: Sequence[ScheduledChunk]) -> StepInputs:
        kernel, chunks = self._kernel, self._paged_chunks
        return pack(slices, self._pool, self.device, kernel=kernel, paged_chunks=chunks, all_paged=self._by_kernels)

    def forward(self, batch: StepInputs) -> Tensor:
        """The logits of the batch's last tokens."""
        return self.compute(Context(batch, self.cache))

    @property
    def is_fused(self) -> bool:
        """Whether the model's forward is the engine's own, instead of transformers'."""
        return self._lean is not None

    def windows(self, context: Context) -> Iterable[int | None]:
        """The sliding windows that the layers have requested from `context`."""
        return context.windows if self._lean is None else self._lean.forward.windows

    def compute(self, context: Context) -> Tensor:
        batch = context.batch
        if self._lean is not None and (self.lora.is_fused or not self.lora.active):  # else they hook into the layers
            return self._lean(context, self.lora.adapted, self.lora.spans)
        logits: Tensor = self.model(
            input_ids=batch.tokens.unsqueeze(0),
            position_ids=batch.positions.unsqueeze(0),
            use_cache=False,
            logits_to_keep=batch.last,
            context=context,
        ).logits[0]
        return logits

    @torch.inference_mode()
    def check(self, tokens: int = 1) -> None:
        """Compute a dummy step; raises if the device or the model is broken."""
        nowhere, pages = [0] * tokens, pages_for(tokens, self._pool.size) if self._by_kernels else 0
        numbers = tensor_of([*nowhere, *range(tokens), *nowhere, 0, *[0] * pages], self.device)
        group = Group(0, 1, tokens, pages * self._pool.size or tokens, at=3 * tokens + 1, pages=pages)
        self.forward(StepInputs(numbers, tokens, 1, [group], [])).sum().item()

    @torch.inference_mode()
    def compute_largest(self, tokens: int, context_length: int, rows: int) -> None:
        """A step of so many tokens at the end of a whole context, and `rows` that draw. One page is enough for it."""
        tokens, pages = min(tokens, context_length), pages_for(context_length, self._pool.size)
        positions = range(context_length - tokens, context_length)
        numbers = tensor_of([*[0] * tokens, *positions, *[0] * (tokens + rows + pages)], self.device)
        group = Group(0, 1, tokens, pages * self._pool.size, at=3 * tokens + rows, pages=pages)
        logits = self.forward(StepInputs(numbers, tokens, rows, [group], []))
        sample(logits, [Draw(Sampling(top_p=0.9), 0)] * rows).read()

    def hold(self, cache: KVCache, pool: PagePool) -> None:
        self.cache, self._pool = cache, pool

    @torch.inference_mode()
    def warm_up(self, max_running: int, context_length: int) -> None:
        """Warm up everything that is created at first use, so that no request pays for it."""
        for tokens in WARM_UP:  # each script more than once: TorchScript optimizes it at its second run
            self.check(min(tokens, context_length))
            for sampling in WARM_UP_DRAWS:
                sample(torch.zeros(2, self.model.config.vocab_size, device=self.device), [Draw(sampling, 0)] * 2).read()
        if self._kernel:
            self._graphs = self._captured(max_running, pages_for(context_length, self._pool.size))

    def _captured(self, rows: int, row_pages: int) -> DecodeGraphs | None:
        lean = self._lean is not None and self._lean.angles_are_fixed
        if not lean and rope_depends_on_length(self.model.config):
            log.info("steps run without CUDA graphs: this model's rotary embedding reads the positions back")
            return None
        graphs = DecodeGraphs(self.forward, self.device, rows, row_pages)
        try:
            graphs.capture()
        except Exception as error:  # noqa: BLE001  what a model may do in its forward is not known; eager is right, too
            log.warning("steps run without CUDA graphs, which costs time: %s", first_line(error))
            return None
        return graphs

    def scrub(self, pages: Sequence[int]) -> None:
        self.cache.scrub(pages)


def _drawing(batch: StepInputs) -> list[Draw]:
    """How each place of `batch.draws` draws."""
    drafts = {id(part): part.sequence.draws(part.draft) for part, offset in batch.draws if offset == 1}
    return [
        drafts[id(part)][offset] if part.draft else part.sequence.draw(part.start + part.count)
        for part, offset in batch.draws
    ]
