"""The forward pass of the Llama family over packed tokens: one script on a CPU, eager elsewhere.

Calling a small model's 150 operations one by one beside a busy event loop made a step of 2.3 ms one of 24 ms
(models/torchscript.py explains why). Weights and cache are therefore attributes of the script, and the inputs of a
step are one tensor.
"""

# No annotations from __future__, because TorchScript reads those of the class.

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, silu

from models.engine.compute.attention import attend, masks_of
from models.linear.int8 import Int8Weight
from models.linear.product import Matrix, product


@dataclass(frozen=True, slots=True)
class Weights:
    """Of one layer: both norms, what comes into attention (queries, keys, values) and out of it, and the MLP's.

    `norms` are those of queries and keys, where there are some.
    """

    before: Tensor
    after: Tensor
    qkv: Matrix
    out: Matrix
    gate_up: Matrix
    down: Matrix
    norms: tuple[Tensor, ...]
    window: int | None


class Forward(nn.Module):
    """`heads` are the number of query heads, of query and key heads together, and their size.

    `turns` are the cosines and sines [n, 1, size] of every position, where those are always the same.
    """

    layers: list[list[Tensor]]
    biases: list[list[Tensor | None]]
    packed: list[list[list[Tensor]]]
    eights: list[list[list[Int8Weight]]]
    packed_head: list[Tensor]
    eight_head: list[Int8Weight]
    windows: list[int | None]
    kinds: list[int]
    keys: list[Tensor]
    values: list[Tensor]
    scratch: list[Tensor]
    turns: list[Tensor]
    head_bias: Tensor | None

    def __init__(
        self,
        layers: Sequence[Weights],
        embeddings: Tensor,
        final: Tensor,
        head: Matrix,
        *,
        heads: tuple[int, int, int],
        scale: float,
        eps: float,
        turns: list[Tensor],
    ) -> None:
        super().__init__()
        self.exact = any(one.qkv.eight for one in layers)
        matrices = [(one.qkv, one.out, one.gate_up, one.down) for one in layers]
        self.layers = [
            [one.before, one.after, *(matrix.weight for matrix in four), *one.norms]
            for one, four in zip(layers, matrices, strict=True)
        ]
        self.biases = [[matrix.bias for matrix in four] for four in matrices]
        self.packed = [[matrix.packed for matrix in four] for four in matrices]
        self.eights = [[matrix.eight for matrix in four] for four in matrices]
        self.packed_head, self.eight_head = head.packed, head.eight
        self.windows = list(dict.fromkeys(one.window for one in layers))
        self.kinds = [self.windows.index(one.window) for one in layers]
        self.embeddings, self.final = embeddings, final
        self.head, self.head_bias = head.weight, head.bias
        self.queries, self.both, self.size = heads
        self.scale, self.eps = scale, eps
        self.small = torch.tensor(eps, device=embeddings.device)
        self.turns = turns
        nothing = [embeddings.new_empty(0)]
        self.keys, self.values, self.scratch = nothing, nothing, nothing

    def forward(
        self, numbers: Tensor, count: int, drawing: int, groups: list[list[int]], turns: list[Tensor]
    ) -> Tensor:
        """The logits of the tokens that draw. All but `turns`, which are those of its tokens, is of a `Batch`."""
        tokens, positions = numbers[:count], numbers[count : 2 * count]
        last = numbers[3 * count : 3 * count + drawing]
        hidden = embedding(tokens, self.embeddings).to(self.final.dtype)
        if len(self.turns) > 0:
            cos, sin = self.turns[0].index_select(0, positions), self.turns[1].index_select(0, positions)
        else:
            cos, sin = turns[0], turns[1]
        dtype = torch.float64 if self.exact else hidden.dtype
        masks = [masks_of(positions, groups, window, False, dtype) for window in self.windows]
        for number, weights in enumerate(self.layers):
            bias, kind, packed, eight = (
                self.biases[number],
                self.kinds[number],
                self.packed[number],
                self.eights[number],
            )
            normed = self.norm(hidden, weights[0])
            joined = product(normed, weights[2], bias[0], packed[0], eight[0]).view(count, -1, self.size)
            turned = joined[:, : self.both]
            if len(weights) > 6:
                asked, known = joined[:, : self.queries], joined[:, self.queries : self.both]
                turned = torch.cat([self.norm(asked, weights[6]), self.norm(known, weights[7])], dim=1)
            # the halves are swapped; the sign of one of them is in `sin`
            turned = torch.addcmul(turned * cos, turned.roll(self.size // 2, -1), sin)
            attended = attend(
                turned[:, : self.queries], turned[:, self.queries :], joined[:, self.both :],
                self.keys[number], self.values[number], numbers, count, groups, masks[kind], self.scratch,
                self.scale, self.windows[kind], None, self.exact,
            )  # fmt: skip
            hidden = hidden + product(attended.reshape(count, -1), weights[3], bias[1], packed[1], eight[1])
            normed = self.norm(hidden, weights[1])
            gate, up = product(normed, weights[4], bias[2], packed[2], eight[2]).chunk(2, -1)
            hidden = hidden + product(silu(gate) * up, weights[5], bias[3], packed[3], eight[3])
        drawing_from = self.norm(hidden.index_select(0, last), self.final)
        return product(drawing_from, self.head, self.head_bias, self.packed_head, self.eight_head)

    def norm(self, hidden: Tensor, weight: Tensor) -> Tensor:
        """RMS norm; the eager operation of torch takes twice as many kernels on a CPU."""
        if hidden.is_cuda:
            return torch.rms_norm(hidden, [hidden.size(-1)], weight, self.eps)
        full = hidden.to(torch.float32)
        length = torch.linalg.vector_norm(full, 2.0, [-1], True)
        scale = torch.addcmul(self.small, length, length, value=1.0 / float(hidden.size(-1))).rsqrt_()
        return (full * scale).to(hidden.dtype).mul_(weight)
