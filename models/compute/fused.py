"""A decoder's forward pass in fewer and larger operations than transformers uses.

A small model's step, and a single sequence's step of any model, spend more time starting operations than computing. If
a decoder is built exactly like one of the known families (decoders.py), its projections of one input become one
product, its norms one operation, and queries and keys are rotated together (forward.py); where this CPU has kernels,
they compute what is between the products (kernel_forward.py). The weights are not duplicated: those of the model's own
layers become views of the joined ones, so its own forward still works, for adapters and for the probe that compares the
two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from models.compute.attention import Context
from models.compute.cache import KVCache
from models.compute.decoders import final_norm, head_of, is_known, shape_of, turns_of, weights_of
from models.compute.forward import Forward
from models.compute.kernel_forward import KERNEL_DTYPES, KernelForward, form_of
from models.files.architectures import LENGTH_DEPENDENT_ROPE, context_limit
from models.kernels import library as kernels
from models.machine.torchscript import compiled
from models.weights.replacing import has_narrow_layers, has_stored_layers
from models.weights.rows import rows_of

FIXED_ANGLES = frozenset({"default", "linear", "llama3", "yarn"}) | LENGTH_DEPENDENT_ROPE  # up to `context_limit`
MOST_ANGLES = 1 << 23
NOBODY = torch.empty(0, dtype=torch.long)
FIRST_ANGLES = 1 << 11
"""Positions whose angles a CPU computes at once; more when a sequence reaches them. A graph needs all of them."""


def why_no_kernels(model: Any, dtype: torch.dtype) -> str | None:
    """Why its steps are not computed by kernels (models/kernels), or None where they are."""
    if model.device.type != "cpu":
        return "they are of a CPU"
    if dtype not in KERNEL_DTYPES:
        return f"they compute no {str(dtype).removeprefix('torch.')}"
    if not is_known(model):
        return f"{type(model).__name__} is no family that they know, or its weights stay in a form of their own"
    if not _may_hold_angles(model):
        return "the angles of its rotary embedding depend on the length of a text"
    return kernels.load()


def computed_by_kernels(model: Any, dtype: torch.dtype) -> bool:
    return why_no_kernels(model, dtype) is None


def cache_dtype(model: Any) -> torch.dtype:
    """Of keys and values: kernels that compute in float32 between products of integers, or of weights in bfloat16, keep
    them in bfloat16, which costs less than those products do, and no more than a model in bfloat16 does.
    """
    if has_narrow_layers(model) and computed_by_kernels(model, model.dtype):
        return torch.bfloat16
    dtype: torch.dtype = model.dtype
    return dtype


class LeanDecoder:
    """Computes what `model` computes for packed tokens."""

    def __init__(
        self,
        model: Any,
        *,
        script: bool = True,
        fixed_angles: bool = True,
        by_kernels: bool = True,
        threads: Sequence[int] = (1,),
    ) -> None:
        """`threads`: by which numbers of them a CPU may compute."""
        self._model = model
        self._most = context_limit(model.config)
        self.angles_are_fixed = fixed_angles and _may_hold_angles(model)
        self.by_kernels = by_kernels and fixed_angles and computed_by_kernels(model, model.dtype)
        self._held_positions = 0
        weights, head = weights_of(model), head_of(model)
        matrices = [matrix for one in weights for matrix in (one.qkv, one.out, one.gate_up, one.down)]
        forward = (KernelForward if self.by_kernels else Forward)(
            weights,
            model.get_input_embeddings().weight.data,
            final_norm(model),
            head,
            shape_of(model),
            model.dtype,
            self._first_turns() if self.angles_are_fixed else [],
            rows_of([*matrices, head], threads),
        )
        self.forward = compiled(forward) if script and model.device.type == "cpu" else forward
        self._cache: KVCache | None = None
        self._scratch: list[Tensor] = []

    def __call__(self, context: Context, adapted: Tensor = NOBODY, spans: Sequence[list[int]] = ()) -> Tensor:
        """The logits of the batch's last tokens, whose adapters are those of `Lora`."""
        batch, cache = context.batch, context.cache
        if self._cache is not cache:
            self._cache = cache
            self.forward.keys, self.forward.values = cache.keys, cache.values
            if self.by_kernels:
                self.forward.form = form_of(  # type: ignore[assignment]
                    self._model.dtype, cache.keys[0].dtype
                )
        if not self.by_kernels and self._scratch is not context.scratch:
            self._scratch = self.forward.scratch = context.scratch
        turns = [] if self.angles_are_fixed else turns_of(self._model, batch.positions.unsqueeze(0))
        if self.angles_are_fixed and self._held_positions < self._most:
            self._hold_angles(max(group.length for group in batch.groups))
        logits: Tensor = self.forward(
            batch.numbers, batch.count, batch.drawing, context.groups, turns, adapted, [*spans]
        )
        return logits

    def _first_turns(self) -> list[Tensor]:
        on_cpu = self._model.device.type == "cpu"
        return self._all_turns(min(self._most, FIRST_ANGLES) if on_cpu else self._most)

    def _hold_angles(self, positions: int) -> None:
        if positions > self._held_positions:
            self.forward.turns = self._all_turns(min(self._most, max(positions, 2 * self._held_positions)))

    @torch.inference_mode()
    def _all_turns(self, count: int) -> list[Tensor]:
        self._held_positions = count
        turns = turns_of(self._model, torch.arange(count, device=self._model.device).unsqueeze(0))
        return [one.float() for one in turns] if self.by_kernels else turns


def _may_hold_angles(model: Any) -> bool:
    """Whether the angles of a position never change, and those of all need little memory. A CPU computes them as
    sequences reach them.
    """
    kinds, size = model.model.rotary_emb.rope_type, model.model.layers[0].self_attn.head_dim
    all_kinds = set(kinds.values()) if isinstance(kinds, dict) else {kinds}
    is_small = model.device.type == "cpu" or context_limit(model.config) * size <= MOST_ANGLES
    return all_kinds <= FIXED_ANGLES and is_small


def lean(model: Any, **how: Any) -> LeanDecoder | None:
    """A fused forward for `model`, if it is of a known family; stored weights have products by kernels alone."""
    is_fused = is_known(model) and (not has_stored_layers(model) or computed_by_kernels(model, model.dtype))
    return LeanDecoder(model, **how) if is_fused else None
