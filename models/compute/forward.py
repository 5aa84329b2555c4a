"""The forward pass of decoders like Llama and Gemma over packed tokens: one script on a CPU without kernels, eager on a
GPU.

Calling a small model's 150 operations one by one beside a busy event loop made a step of 2.3 ms one of 24 ms
(machine/torchscript.py explains why). Weights and cache are therefore attributes of the script, and the inputs of a
step are one tensor.
"""

# No annotations from __future__, because TorchScript reads those of the class.

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, gelu, silu

from models.compute.attention import attend, masks_of
from models.weights.int8 import Int8Weight
from models.weights.matrix import Matrix, Rows, add_low_rank, product


@dataclass(frozen=True, slots=True)
class Weights:
    """Of one layer: both norms, what comes into attention (queries, keys, values) and out of it, and the MLP's.

    `norms` are those of queries and keys, `posts` those of what attention and the MLP add, where there are some;
    `angles` the kind of its rotary embedding.
    """

    before: Tensor
    after: Tensor
    qkv: Matrix
    out: Matrix
    gate_up: Matrix
    down: Matrix
    norms: tuple[Tensor, ...]
    window: int | None
    posts: tuple[Tensor, ...] = ()
    angles: int = 0


@dataclass(frozen=True, slots=True)
class Shape:
    """What all layers of a decoder share. `heads` are the number of query heads, of query and key heads together, and
    their size. `has_wide_norms`: a norm's weight is multiplied before its result is rounded. `cap` and `last_cap` bound
    the scores of attention and the logits (Gemma 2).
    """

    heads: tuple[int, int, int]
    scale: float
    eps: float
    embedding_scale: float = 1.0
    is_gelu: bool = False
    has_wide_norms: bool = False
    cap: float | None = None
    last_cap: float | None = None


class Forward(nn.Module):
    """`turns` are the cosines and sines [n, 1, size] of every position, for each kind of rotary embedding, where those
    are always the same. `parts`, `eights` and `biases` are those of the four matrices of each layer, and of the
    vocabulary's.
    """

    norms: list[list[Tensor]]
    head_norms: list[list[Tensor]]
    posts: list[list[Tensor]]
    parts: list[list[Tensor]]
    eights: list[list[Int8Weight]]
    biases: list[Tensor | None]
    is_stored: list[bool]
    windows: list[int | None]
    kinds: list[int]
    angles: list[int]
    keys: list[Tensor]
    values: list[Tensor]
    scratch: list[Tensor]
    turns: list[Tensor]
    adapters: list[list[list[Tensor]]]
    cap: float | None
    last_cap: float | None

    def __init__(
        self,
        layers: Sequence[Weights],
        embeddings: Tensor,
        final: Tensor,
        head: Matrix,
        shape: Shape,
        dtype: torch.dtype,
        turns: list[Tensor],
        rows: Rows,
    ) -> None:
        """`rows` are those of its products."""
        super().__init__()
        self.exact = embeddings.device.type == "cpu"
        self.least, self.most = rows
        self.adapters = []
        self.least_adapted, self.most_adapted = 1, 0
        matrices = [matrix for one in layers for matrix in (one.qkv, one.out, one.gate_up, one.down)] + [head]
        self.parts = [one.parts for one in matrices]
        self.eights = [one.eight for one in matrices]
        self.biases = [one.bias for one in matrices]
        self.is_stored = [one.is_stored for one in matrices]
        self.norms = [[one.before, one.after] for one in layers]
        self.head_norms = [list(one.norms) for one in layers]
        self.posts = [list(one.posts) for one in layers]
        self.windows = list(dict.fromkeys(one.window for one in layers))
        self.kinds = [self.windows.index(one.window) for one in layers]
        self.angles = [one.angles for one in layers]
        self.embeddings, self.final = embeddings, final
        self.queries, self.both, self.size = shape.heads
        self.scale, self.eps, self.dtype = shape.scale, shape.eps, dtype
        self.embedding_scale, self.is_gelu, self.has_wide_norms = (
            shape.embedding_scale,
            shape.is_gelu,
            shape.has_wide_norms,
        )
        self.cap, self.last_cap = shape.cap, shape.last_cap
        self.small = torch.tensor(shape.eps, device=embeddings.device)
        self.turns = turns
        nothing = [embeddings.new_empty(0)]
        self.keys, self.values, self.scratch = nothing, nothing, nothing

    def forward(
        self,
        numbers: Tensor,
        count: int,
        drawing: int,
        groups: list[list[int]],
        turns: list[Tensor],
        adapted: Tensor,
        spans: list[list[int]],
    ) -> Tensor:
        """The logits of the tokens that draw. All is of a `Batch` but `turns`, which are those of its tokens, and the
        last two, which say whose tokens have which adapter (lora.py).
        """
        tokens, positions = numbers[:count], numbers[count : 2 * count]
        last = numbers[3 * count : 3 * count + drawing]
        hidden = embedding(tokens, self.embeddings).to(self.dtype)
        if self.embedding_scale != 1.0:
            hidden = hidden * self.embedding_scale
        if len(self.turns) > 0:
            turns = [every.index_select(0, positions) for every in self.turns]
        dtype = torch.float64 if self.exact else hidden.dtype
        masks = [masks_of(positions, groups, window, self.cap is not None, dtype) for window in self.windows]
        for number, norms in enumerate(self.norms):
            kind = self.kinds[number]
            normed = self.norm(hidden, norms[0])
            joined = self.part(normed, number, 0, adapted, spans).view(count, -1, self.size)
            turned = joined[:, : self.both]
            if len(self.head_norms[number]) > 0:
                asked, known = joined[:, : self.queries], joined[:, self.queries : self.both]
                of_queries, of_keys = self.head_norms[number]
                turned = torch.cat([self.norm(asked, of_queries), self.norm(known, of_keys)], dim=1)
            # the halves are swapped; the sign of one of them is in `sin`
            cos, sin = turns[2 * self.angles[number]], turns[2 * self.angles[number] + 1]
            turned = torch.addcmul(turned * cos, turned.roll(self.size // 2, -1), sin)
            attended = attend(
                turned[:, : self.queries], turned[:, self.queries :], joined[:, self.both :],
                self.keys[number], self.values[number], numbers, count, groups, masks[kind], self.scratch,
                self.scale, self.windows[kind], self.cap, self.exact,
            )  # fmt: skip
            added = self.part(attended.reshape(count, -1), number, 1, adapted, spans)
            hidden = hidden + self.after(added, number, 0)
            normed = self.norm(hidden, norms[1])
            gate, up = self.part(normed, number, 2, adapted, spans).chunk(2, -1)
            gate = gelu(gate, approximate="tanh") if self.is_gelu else silu(gate)
            added = self.part(gate.mul_(up), number, 3, adapted, spans)
            hidden = hidden + self.after(added, number, 1)
        drawing_from = self.norm(hidden.index_select(0, last), self.final)
        logits = self.multiply(drawing_from, -1)
        cap = self.last_cap
        return logits if cap is None else torch.tanh(logits / cap) * cap

    def part(self, given: Tensor, layer: int, part: int, adapted: Tensor, spans: list[list[int]]) -> Tensor:
        """The product of a layer's matrix number `part` (queries, keys and values; out; gate and up; down), with what
        adapters add to it.
        """
        found = self.multiply(given, 4 * layer + part)
        for adapter, first, rows in spans:
            pair = self.adapters[adapter][4 * layer + part]
            if len(pair) > 0:
                at = adapted[first : first + rows]
                add_low_rank(found, given, at, pair[0], pair[1], self.least_adapted, self.most_adapted)
        return found

    def multiply(self, given: Tensor, matrix: int) -> Tensor:
        return product(given, self.parts[matrix], self.eights[matrix], self.biases[matrix], self.least, self.most)

    def after(self, added: Tensor, layer: int, part: int) -> Tensor:
        """What attention (`part` 0) or the MLP (1) of a layer adds, by its norm if it has one."""
        norms = self.posts[layer]
        return self.norm(added, norms[part]) if len(norms) > 0 else added

    def norm(self, hidden: Tensor, weight: Tensor) -> Tensor:
        """RMS norm; the eager operation of torch takes twice as many kernels on a CPU."""
        if hidden.is_cuda:
            if self.has_wide_norms:
                return torch.rms_norm(hidden.to(torch.float32), [hidden.size(-1)], weight, self.eps).to(hidden.dtype)
            return torch.rms_norm(hidden, [hidden.size(-1)], weight, self.eps)
        full = hidden.to(torch.float32)
        length = torch.linalg.vector_norm(full, 2.0, [-1], True)
        scale = torch.addcmul(self.small, length, length, value=1.0 / float(hidden.size(-1))).rsqrt_()
        if self.has_wide_norms:
            return (full * scale).mul_(weight).to(hidden.dtype)
        return (full * scale).to(hidden.dtype).mul_(weight)
