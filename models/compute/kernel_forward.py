"""The forward pass of forward.py on a CPU by kernels (models/kernels): between the products of a layer, five of them
instead of a hundred operations.

The hidden state stays in float32, whatever the products are computed in.
"""

# No annotations from __future__, because TorchScript reads those of the class.

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding

from models.compute.cache import PAGE_SIZE
from models.compute.forward import Forward
from models.kernels.schemas import NORMED, NOTHING, PLAIN, NumberForm
from models.weights.int8 import block_count, block_sums
from models.weights.matrix import product
from models.weights.stored import stored_product

LARGE, MOST_KEPT = 1 << 22, 1 << 25
"""From so many logits on, the C library may take their memory from Linux anew in each step: up to 128 MiB are kept."""
TILE = 16
"""Queries that read a key together: those of several tokens, if a head of keys has fewer."""
KERNEL_DTYPES = (torch.float32, torch.bfloat16)


def form_of(dtype: torch.dtype, cache: torch.dtype) -> int:
    """Of steps in `dtype` with such a cache."""
    if dtype is torch.bfloat16:
        return int(NumberForm.BFLOAT16)
    return int(NumberForm.FLOAT32 if cache is torch.float32 else NumberForm.NARROW_CACHE)


class KernelForward(Forward):
    """`turns` are those of every position. In int8, many logits (`LARGE`) are in memory that the next step writes over,
    which begins when this one has been read.
    """

    # TorchScript does not read those of the base.
    __annotations__ = Forward.__annotations__

    def __init__(self, *parts: Any) -> None:
        """Those of `Forward`."""
        super().__init__(*parts)
        self.form = form_of(self.dtype, self.dtype)
        self.is_alike = len(self.parts[0]) != 1 or self.is_stored[0]
        self.norms = [[norm.float() for norm in one] for one in self.norms]
        self.head_norms = [[norm.float() for norm in one] for one in self.head_norms]
        self.posts = [[norm.float() for norm in one] for one in self.posts]
        self.final = self.final.float()
        self.nothing = torch.empty(0)
        self.room, self.large, self.most_kept = torch.empty(0), LARGE, MOST_KEPT
        self.kv, self.page = self.both - self.queries, PAGE_SIZE
        self.tile = max(1, TILE * self.kv // self.queries)
        # what the first norm adds before, and each layer's others (`ADD_NORM`)
        self.sums = [NOTHING, *(NORMED if one else PLAIN for one in self.posts)]

    def forward(
        self,
        numbers: Tensor,
        count: int,
        drawing: int,
        groups: list[list[int]],
        turns: list[Tensor],  # noqa: ARG002 - one signature for both
        adapted: Tensor,
        spans: list[list[int]],
    ) -> Tensor:
        """See `Forward`; `turns` is empty."""
        tokens = numbers[:count]
        last = numbers[3 * count : 3 * count + drawing]
        narrow = embedding(tokens, self.embeddings).to(self.dtype)
        if self.embedding_scale != 1.0:
            narrow = narrow * self.embedding_scale
        hidden = narrow.to(torch.float32)
        size = hidden.size(1)
        longest, tiles = 1, 0
        for group in groups:
            assert group[5] > 0, "kernels read keys and values from pages"
            longest = max(longest, group[3])
            tiles += group[1] * ((group[2] + self.tile - 1) // self.tile)
        table = torch.tensor(groups, dtype=torch.int64)
        normed, attended = self.space(count, size), self.space(count, self.queries * self.size)
        added = narrow
        for number in range(len(self.norms)):
            post = self.post_of(number - 1, 1)
            self.add_norm(hidden, added, post, self.norms[number][0], normed, self.sums[number])
            joined = self.part(normed, number, 0, adapted, spans)
            self.rotate(joined, count, number, numbers)
            window = self.windows[self.kinds[number]]
            self.attend(
                joined, count, number, numbers, table, tiles, longest, 0 if window is None else window, attended
            )
            added = self.part(attended, number, 1, adapted, spans)
            post = self.post_of(number, 0)
            self.add_norm(hidden, added, post, self.norms[number][1], normed, self.sums[number + 1])
            gates = self.part(normed, number, 2, adapted, spans)
            inner = gates.size(1) // 2
            gated = self.space(count, inner)
            torch.ops.parley.gate(gates, gated, count, 1 + 8192 // inner, self.form, inner, int(self.is_gelu))
            added = self.part(gated, number, 3, adapted, spans)
        self.add_norm(hidden, added, self.post_of(len(self.norms) - 1, 1), self.final, normed, self.sums[-1])
        logits = self.multiply(normed.index_select(0, last), -1)
        cap = self.last_cap
        return logits if cap is None else torch.tanh(logits / cap) * cap

    def rows_of(self, count: int) -> int:
        """How many rows the products of a step with `count` tokens have: those of rows.py. oneDNN keeps code for each
        number of rows, 3 MB for Gemma 3 270M. Long prompts are therefore padded with a few unused rows.
        """
        if self.is_alike:
            return count
        if count <= 32:
            return max(count, self.least)
        step = 4 if count <= 64 else 8 if count <= 128 else 16
        return (count + step - 1) // step * step

    def space(self, count: int, size: int) -> Tensor:
        """Rows for `count` tokens. Those that are more are zeros: what lies in memory may be slow to multiply."""
        rows = self.rows_of(count)
        shape = [rows, size]
        return torch.empty(shape, dtype=self.dtype) if rows == count else torch.zeros(shape, dtype=self.dtype)

    def post_of(self, layer: int, part: int) -> Tensor:
        """The weight of the norm behind attention (`part` 0) or the MLP (1) of a layer."""
        if layer < 0:
            return self.nothing
        posts = self.posts[layer]
        return posts[part] if len(posts) > 0 else self.nothing

    def add_norm(self, hidden: Tensor, added: Tensor, post: Tensor, weight: Tensor, normed: Tensor, kind: int) -> None:
        rows, size = hidden.size(0), hidden.size(1)
        torch.ops.parley.add_norm(
            hidden, added, post, weight, normed, rows, 1 + 16384 // size, self.form, size, kind, self.eps
        )

    def rotate(self, joined: Tensor, count: int, layer: int, numbers: Tensor) -> None:
        norms = self.head_norms[layer]
        is_normed = len(norms) > 0
        cos, sin = self.turns[2 * self.angles[layer]], self.turns[2 * self.angles[layer] + 1]
        torch.ops.parley.rotate(
            joined, norms[0] if is_normed else self.nothing, norms[1] if is_normed else self.nothing, cos, sin,
            numbers, self.keys[layer], self.values[layer], count, 1 + 8192 // joined.size(1),
            self.form, self.queries, self.kv, self.size, int(is_normed), self.eps,
        )  # fmt: skip

    def attend(
        self, joined: Tensor, rows: int, layer: int, numbers: Tensor, table: Tensor, tiles: int, longest: int,
        window: int, attended: Tensor,
    ) -> None:  # fmt: skip
        cap = self.cap
        grain = 1 + 32768 // (longest * (self.queries // self.kv) * self.size)
        torch.ops.parley.attend(
            joined, self.keys[layer], self.values[layer], numbers, table, attended, tiles * self.kv, grain,
            self.form, rows, self.queries, self.kv, self.size, window, self.page, longest, table.size(0), self.tile,
            self.scale, 0.0 if cap is None else cap,
        )  # fmt: skip

    def multiply(self, given: Tensor, matrix: int) -> Tensor:
        """See `product`."""
        parts, eight, bias = self.parts[matrix], self.eights[matrix], self.biases[matrix]
        if self.is_stored[matrix]:
            return stored_product(given, parts[0], bias)
        if len(parts) == 1:
            return product(given, parts, eight, bias, self.least, self.most)
        rows, size, is_integer = given.size(0), given.size(1), len(eight) == 0
        scales = torch.empty([rows])
        quants = torch.empty([rows, size], dtype=torch.int8 if is_integer else torch.float32)
        grain = 1 + 16384 // size
        torch.ops.parley.quantize(given.to(torch.float32), quants, scales, rows, grain, 0, size, int(is_integer))
        return self.scaled(quants, scales, matrix).to(self.dtype)

    def scaled(self, quants: Tensor, scales: Tensor, matrix: int) -> Tensor:
        """The sums of all blocks by their rows' `scales`, with the bias. All blocks but the last one are alike."""
        parts, eight, bias = self.parts[matrix], self.eights[matrix], self.biases[matrix]
        count, added = block_count(parts, eight), self.nothing if bias is None else bias.to(torch.float32)
        rows, last = quants.size(0), block_sums(quants, parts, eight, count - 1)
        width = last.size(1)
        if count == 1:
            whole = torch.empty([rows, width])
        else:
            found = block_sums(quants, parts, eight, 0)
            whole = self.room_for(rows, found.size(1) * (count - 1) + width)
            self.scale_into(found, scales, added, whole, 0)
            for block in range(1, count - 1):
                found = block_sums(quants, parts, eight, block)
                self.scale_into(found, scales, added, whole, block * found.size(1))
        self.scale_into(last, scales, added, whole, whole.size(1) - width)
        return whole

    def scale_into(self, found: Tensor, scales: Tensor, bias: Tensor, whole: Tensor, first: int) -> None:
        """Write the sums `found` of a block as the columns of `whole` from `first` on."""
        rows, outputs = found.size(0), found.size(1)
        torch.ops.parley.scale(
            found, scales, bias, whole, rows, 1 + 32768 // outputs, 0,
            outputs, first, whole.size(1), int(bias.numel() > 0),
        )  # fmt: skip

    def room_for(self, rows: int, outputs: int) -> Tensor:
        size = rows * outputs
        if size < self.large or size > self.most_kept:
            return torch.empty([rows, outputs])
        if self.room.numel() < size:
            self.room = torch.empty([size])
        return self.room[:size].view(rows, outputs)
