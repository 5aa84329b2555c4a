"""What each kernel takes, as torch's schemas have it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

_SHARED = "int rows, int grain, int form"


class NumberForm(IntEnum):
    """What rows are made of, and the cache of keys and values: it is of bfloat16 in the last two."""

    FLOAT32 = 0
    BFLOAT16 = 1
    NARROW_CACHE = 2
    """Rows of float32."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """An operation whose rows are shared by torch's threads.

    `tensors` come first, those that are written with a mark; all are contiguous. Then come the number of rows, how many
    are worth a thread, and their `NumberForm`; then the kernel's own `numbers`.
    """

    name: str
    tensors: tuple[str, ...]
    numbers: str

    @property
    def schema(self) -> str:
        tensors = (_typed(one, mark) for one, mark in zip(self.tensors, "abcdefgh", strict=False))
        return f"{self.name}({', '.join(tensors)}, {_SHARED}, {self.numbers}) -> ()"

    @property
    def has_cache(self) -> bool:
        return any(one.startswith("keys") for one in self.tensors)

    @property
    def symbol(self) -> str:
        """The function that torch calls (boxing.py)."""
        return f"parley_{self.name}"


def _typed(tensor: str, mark: str) -> str:
    return f"Tensor({mark}!) {tensor[:-1]}" if tensor.endswith("!") else f"Tensor {tensor}"


NOTHING, PLAIN, NORMED = 0, 1, 2
"""What `ADD_NORM` adds: nothing, `added`, or its norm, whose weight is `post`."""
ADD_NORM = Kernel("add_norm", ("hidden!", "added", "post", "weight", "normed!"), "int size, int kind, float eps")
"""`hidden` [T, size] in float32 plus what `kind` says, and its norm. `added` and `normed` [T, size]; the
weights `post` and `weight` [size] in float32.
"""
ROTATE = Kernel(
    "rotate",
    ("joined!", "query_norm", "key_norm", "cos", "sin", "numbers", "keys!", "values!"),
    "int queries, int kv, int size, int is_normed, float eps",
)
"""`joined` [T, queries + 2 * kv, size]; the norms [size], and `cos` and `sin` [positions, size], in float32; `numbers`
those of a `Batch`; `keys` and `values` a layer's cache.
"""
ATTEND = Kernel(
    "attend",
    ("joined", "keys", "values", "numbers", "groups", "out!"),
    "int tokens, int queries, int kv, int size, int window, int page, int longest, int many, int tile, float scale, "
    "float cap",
)
"""A row is a head of keys and up to `tile` tokens that follow each other in a row of a group. `joined` is rotated, and
the cache has its keys and values. `groups` are the `many` groups of a `Batch`, all with pages; `out` is [T, queries,
size]. `longest` is the most that a token attends; `window` and `cap` are 0 where there is none.
"""
GATE = Kernel("gate", ("given", "out!"), "int inner, int is_gelu")
"""`given` [T, 2 * inner], `out` [T, inner]. `is_gelu`: its approximation by tanh, instead of SiLU."""
QUANTIZE = Kernel("quantize", ("given", "quants!", "scales!"), "int size, int is_integer")
"""`given` [T, size] and `scales` [T] in float32, `quants` [T, size] in int8 or, for FBGEMM, in float32."""
SCALE = Kernel("scale", ("found", "scales", "bias", "out!"), "int outputs, int first, int width, int has_bias")
"""`found` [T, outputs] by `scales` [T], plus `bias` [width], into the columns of `out` [T, width] from `first` on; all
in float32.
"""
DRAW = Kernel("draw", ("scores", "noise_keys", "numbers", "most", "masks", "starts", "tokens!", "best!"), "int width")
"""`scores` [T, width]. For each row, the two `noise_keys` of its token [T, 2] and the `most` tokens that it keeps [T],
0 for all, in int64; its temperature, 0 for the largest score, its top_p and min_p in `numbers` [T, 3]. Its mask starts
at the byte of `masks` that `starts` [T] says in int64, -1 if it has none: a bit for each token that may be drawn, the
lowest one first. `tokens` [T] are what is drawn, `best` [T] the largest score of those, in float32.
"""
OUTPUTS_AT_ONCE = 64
MULTIPLY = Kernel("multiply", ("given", "weight", "out!"), "int tokens, int inputs, int outputs")
"""`given` [tokens, inputs] in float32 by `weight` [outputs, inputs], which the form is of, into `out` [tokens, outputs]
in float32. A row is `OUTPUTS_AT_ONCE` outputs.
"""
KERNELS = (ADD_NORM, ROTATE, ATTEND, GATE, QUANTIZE, SCALE, MULTIPLY, DRAW)
