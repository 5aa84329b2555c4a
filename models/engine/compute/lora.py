"""Answers of many LoRA adapters in one forward.

The matrices of all adapters in a step are placed side by side. One product multiplies all tokens by all of them, the
parts of other adapters are masked, and a second product maps the rest back. This is exact for any mixture, needs no
sorting and no loop, and is cheap because ranks are small. The layers themselves, plain or quantized, stay as they are:
a hook adds to what they return.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from models.adapters import Adapter
from models.engine.sequence import ScheduledChunk

Layers = dict[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Stack:
    """What several adapters add to one layer: `down` [sum of ranks, in], `up` [out, sum of ranks]."""

    down: Tensor
    up: Tensor
    ranks: tuple[int, ...]  # of each adapter, 0 if it does not change this layer


class Lora:
    """The adapters in memory, and what they add in this step."""

    def __init__(self, model: Any) -> None:
        self.layers = linear_layers(model)
        self.held: dict[str, Adapter] = {}
        self._modules = dict(model.named_modules())
        self._hooked: set[str] = set()
        self._stacked: tuple[str, ...] = ()
        self._stacks: dict[str, Stack] = {}
        self._owners: Tensor | None = None  # for each token of this step: the index of its adapter, or -1
        self._foreign: dict[tuple[int, ...], Tensor] = {}

    @property
    def active(self) -> bool:
        return self._owners is not None

    def hold(self, name: str, adapter: Adapter) -> None:
        self.held[name] = adapter
        for path in adapter.keys() - self._hooked:
            self._modules[path].register_forward_hook(lambda _, given, out, path=path: self._add(path, given[0], out))
            self._hooked.add(path)

    def drop(self, name: str) -> None:
        del self.held[name]
        if name in self._stacked:
            self._stacked, self._stacks = (), {}

    def route(self, parts: Sequence[ScheduledChunk]) -> None:
        """Set the adapters of the next forward's tokens."""
        self._owners, self._foreign = None, {}
        names = {part.sequence.job.adapter for part in parts} - {""}
        if not names:
            return
        if not names <= set(self._stacked) or len(self._stacked) > 2 * len(names):
            self._stack(tuple(sorted(names)))
        index_of = {name: at for at, name in enumerate(self._stacked)}
        owners = [index_of.get(part.sequence.job.adapter, -1) for part in parts for _ in range(part.count)]
        device = next(iter(self._stacks.values())).down.device
        self._owners = torch.tensor(owners, device=device).unsqueeze(1)

    def _stack(self, names: tuple[str, ...]) -> None:
        self._stacked, self._stacks = names, {}
        adapters = [self.held[name] for name in names]
        for path in set(itertools.chain(*adapters)):
            deltas = [adapter.get(path) for adapter in adapters]
            there = [delta for delta in deltas if delta is not None]
            self._stacks[path] = Stack(
                torch.cat([delta.down for delta in there]),
                torch.cat([delta.up for delta in there], dim=1),
                tuple(0 if delta is None else delta.rank for delta in deltas),
            )

    def _add(self, path: str, given: Tensor, out: Tensor) -> Tensor | None:
        stack = self._stacks.get(path) if self._owners is not None else None
        if stack is None:
            return None
        foreign = self._foreign.get(stack.ranks)
        if foreign is None:
            foreign = self._foreign[stack.ranks] = self._mask(stack.ranks)
        return out + linear(linear(given, stack.down).masked_fill(foreign, 0.0), stack.up)

    def _mask(self, ranks: tuple[int, ...]) -> Tensor:
        """Which columns of the first product do not belong to a token's adapter: [T, sum of ranks]."""
        assert self._owners is not None
        columns = [at for at, rank in enumerate(ranks) for _ in range(rank)]
        return self._owners != torch.tensor(columns, device=self._owners.device)


def linear_layers(model: Any) -> Layers:
    """Layers that see every token of a step, so that a token's adapter can change them, with their widths in and
    out.
    """
    return {
        path: (int(module.in_features), int(module.out_features))
        for path, module in model.named_modules()
        if ".layers." in path and hasattr(module, "in_features") and hasattr(module, "out_features")
    }
