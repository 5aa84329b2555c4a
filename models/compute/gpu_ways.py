"""What of a GPU's ways can be had on this machine, tried at the start.

Triton needs a C compiler for its first launch, and a kernel more memory than some devices have. What cannot be had is
left out with one line of the log: its answers are the same, and take longer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress

import torch
from torch import Tensor

from models.compute.attention import dense
from models.compute.cache import KVCache
from models.files.errors import first_line

log = logging.getLogger(__name__)
NEAR = 0.05
_LENGTHS = (1, 17, 40)


def begin(device: torch.device) -> None:
    """For this thread, before anything is computed."""
    torch.cuda.set_device(device)  # the default stream would be used otherwise
    # cuDNN makes a plan for each width and length of a chunk, and both change with every prompt.
    with suppress(AttributeError):
        torch.backends.cuda.enable_cudnn_sdp(enabled=False)


def memory_of(device: torch.device, step: Callable[[], None]) -> int:
    """Bytes that a step takes beside what is there already, found by trying it; 0 if it fails."""
    try:
        begin(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        step()
        return torch.cuda.max_memory_allocated(device) - before
    except Exception as error:  # noqa: BLE001 - it may do with fewer tokens, and its thread tells what is broken
        log.warning("what the largest step takes is not known, and no memory is left for it: %s", first_line(error))
        return 0
    finally:
        with suppress(Exception):
            torch.cuda.empty_cache()


@torch.inference_mode()
def why_no_paged_kernel(cache: KVCache, heads: int) -> str | None:
    """Why the kernel of paged_decode.py cannot attend single tokens of so many heads, or None."""
    kept = cache.keys[0]
    page, kv, size = kept.shape[1:]
    chance = torch.Generator().manual_seed(1)
    width = -(-max(_LENGTHS) // page)
    numbers = [torch.randn(1 + width * len(_LENGTHS), page, kv, size, generator=chance) for _ in range(2)]
    keys, values = (one.to(kept.device, kept.dtype) for one in numbers)
    query = torch.randn(len(_LENGTHS), heads, size, generator=chance).to(kept.device, kept.dtype)
    table = torch.arange(1, len(keys), device=kept.device).view(len(_LENGTHS), width)
    positions = torch.tensor(_LENGTHS, device=kept.device) - 1
    try:
        from models.compute.paged_decode import paged_decode

        found = paged_decode(query, keys, values, table, positions, scale=size**-0.5)
        off = float((found.float() - _gathered(query, keys, values, table)).abs().max())
    except Exception as error:  # noqa: BLE001 - of a compiler, a driver, a library: whatever it is, there is another way
        return first_line(error)
    return None if off <= NEAR else "its results are others than those of torch"


def _gathered(query: Tensor, keys: Tensor, values: Tensor, table: Tensor) -> Tensor:
    rows = []
    for at, length in enumerate(_LENGTHS):
        key, value = (one[table[at]].flatten(0, 1)[:length].transpose(0, 1)[None].float() for one in (keys, values))
        rows.append(dense(query[at : at + 1].float(), key, value, None, 1, query.shape[2] ** -0.5))
    return torch.cat(rows)
