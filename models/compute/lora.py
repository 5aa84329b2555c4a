"""Answers of many LoRA adapters in one forward.

On a CPU every adapter multiplies its own tokens, by two small products each of which has the shape of that adapter
alone: so neither an answer without an adapter nor one with another depends on which adapters are beside it. The fused
forward adds them (forward.py); layers of transformers, plain or quantized, have a hook that adds to what they return.

On a GPU, where starting a product takes longer than computing it, the matrices of all adapters in a step are placed
side by side. One product multiplies all tokens by all of them, the parts of other adapters are masked, and a second
product maps the rest back.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from models.compute.batch import tensor_of

if TYPE_CHECKING:
    from models.engine.sequence import ScheduledChunk
from models.files.adapters import Adapter
from models.weights.matrix import Matrix, Rows, add_low_rank
from models.weights.rows import rows_of

Layers = dict[str, tuple[int, int]]
FUSED = (
    ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    ("self_attn.o_proj",),
    ("mlp.gate_proj", "mlp.up_proj"),
    ("mlp.down_proj",),
)
"""The layers whose weights are one matrix of the fused forward, for each of a layer's four."""


@dataclass(frozen=True, slots=True)
class Stack:
    """What several adapters add to one layer: `down` [sum of ranks, in], `up` [out, sum of ranks]."""

    down: Tensor
    up: Tensor
    ranks: tuple[int, ...]  # of each adapter, 0 if it does not change this layer


class Lora:
    """The adapters in memory, and what they add in this step: the tokens `adapted`, of which each of `spans` says an
    adapter's number, its first and how many it has.
    """

    def __init__(self, model: Any, forward: Any = None, threads: Sequence[int] = (1,)) -> None:
        """`forward`: the fused one, if it is to add them; else hooks do. `threads`: by which numbers of them a CPU may
        compute.
        """
        self.layers = linear_layers(model)
        self.held: dict[str, Adapter] = {}
        self.adapted = self._nobody = torch.empty(0, dtype=torch.long)
        self.spans: list[list[int]] = []
        self._forward, self._threads = forward, threads
        self._is_stacked = model.device.type != "cpu"
        self._rows = Rows()
        self._fused: dict[str, list[list[Tensor]]] = {}
        self._modules = dict(model.named_modules())
        self._hooked: set[str] = set()
        self._stacked: tuple[str, ...] = ()
        self._stacks: dict[str, Stack] = {}
        self._owners: Tensor | None = None  # for each token of this step: the index of its adapter, or -1
        self._foreign: dict[tuple[int, ...], Tensor] = {}

    @property
    def active(self) -> bool:
        return self._owners is not None or bool(self.spans)

    @property
    def is_fused(self) -> bool:
        """Whether the fused forward adds them, instead of hooks in the model's own layers."""
        return self._forward is not None

    def hold(self, name: str, adapter: Adapter) -> None:
        self.held[name] = adapter
        if not self._is_stacked:
            self._keep_rows_alike(adapter)
        if self._forward is not None:
            self._fused[name] = self._joined(adapter)
            self._renew()
            return
        for path in adapter.keys() - self._hooked:
            self._modules[path].register_forward_hook(lambda _, given, out, path=path: self._add(path, given[0], out))
            self._hooked.add(path)

    def drop(self, name: str) -> None:
        del self.held[name]
        self._fused.pop(name, None)
        self._renew()
        if name in self._stacked:
            self._stacked, self._stacks = (), {}

    def route(self, parts: Sequence[ScheduledChunk]) -> None:
        """Set the adapters of the next forward's tokens."""
        self._owners, self._foreign = None, {}
        self.adapted, self.spans = self._nobody, []
        names = {part.sequence.job.adapter for part in parts} - {""}
        if not names:
            return
        if not self._is_stacked:
            self._assign(parts)
            return
        if not names <= set(self._stacked) or len(self._stacked) > 2 * len(names):
            self._stack(tuple(sorted(names)))
        index_of = {name: at for at, name in enumerate(self._stacked)}
        owners = [index_of.get(part.sequence.job.adapter, -1) for part in parts for _ in range(part.count)]
        device = next(iter(self._stacks.values())).down.device
        self._owners = tensor_of(owners, device).unsqueeze(1)

    def _assign(self, parts: Sequence[ScheduledChunk]) -> None:
        tokens: dict[str, list[int]] = {}
        first = 0
        for part in parts:
            if part.sequence.job.adapter:
                tokens.setdefault(part.sequence.job.adapter, []).extend(range(first, first + part.count))
            first += part.count
        numbers = {name: number for number, name in enumerate(self.held)}
        firsts = itertools.accumulate((len(one) for one in tokens.values()), initial=0)
        self.spans = [[numbers[name], at, len(own)] for (name, own), at in zip(tokens.items(), firsts, strict=False)]
        self.adapted = torch.tensor([*itertools.chain(*tokens.values())])

    def _keep_rows_alike(self, adapter: Adapter) -> None:
        matrices = [Matrix([one]) for delta in adapter.values() for one in (delta.down, delta.up)]
        rows = rows_of(matrices, self._threads)
        self._rows = Rows(max(self._rows.least, rows.least), self._rows.most or rows.most)

    def _renew(self) -> None:
        """The fused forward numbers adapters in the order in which they are held."""
        if self._forward is not None:
            self._forward.adapters = [self._fused[name] for name in self.held if name in self._fused]
            self._forward.least_adapted, self._forward.most_adapted = self._rows

    def _joined(self, adapter: Adapter) -> list[list[Tensor]]:
        """For each matrix of the fused forward, what is added to it: nothing, or two matrices."""
        found: list[list[Tensor]] = []
        count = 1 + max(int(path.split(".layers.")[1].split(".")[0]) for path in self.layers)
        before = next(iter(self.layers)).split(".layers.")[0]
        for layer, names in itertools.product(range(count), FUSED):
            paths = [f"{before}.layers.{layer}.{name}" for name in names]
            found.append(self._of_matrix(paths, adapter))
        return found

    def _of_matrix(self, paths: Sequence[str], adapter: Adapter) -> list[Tensor]:
        deltas = [adapter[path] for path in paths if path in adapter]
        if not deltas:
            return []
        up = deltas[0].up.new_zeros(sum(self.layers[path][1] for path in paths), sum(one.rank for one in deltas))
        output = column = 0
        for path in paths:
            outputs = self.layers[path][1]
            if (delta := adapter.get(path)) is not None:
                up[output : output + outputs, column : column + delta.rank] = delta.up
                column += delta.rank
            output += outputs
        return [torch.cat([one.down for one in deltas]), up]

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
        if self.spans:
            return self._added(path, given, out)
        stack = self._stacks.get(path) if self._owners is not None else None
        if stack is None:
            return None
        foreign = self._foreign.get(stack.ranks)
        if foreign is None:
            foreign = self._foreign[stack.ranks] = self._mask(stack.ranks)
        return out + linear(linear(given, stack.down).masked_fill(foreign, 0.0), stack.up)

    def _added(self, path: str, given: Tensor, out: Tensor) -> Tensor:
        adapters = list(self.held.values())
        found = out.reshape(-1, out.shape[-1]).clone()  # a product may be shared by several layers
        for number, first, count in self.spans:
            if (delta := adapters[number].get(path)) is not None:
                rows, at = given.reshape(-1, given.shape[-1]), self.adapted[first : first + count]
                add_low_rank(found, rows, at, delta.down, delta.up, *self._rows)
        return found.view(out.shape)

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
