"""What of a GPU's ways can be had on this machine, tried at the start.

Triton needs a C compiler for its first launch, and a kernel more memory than some devices have. What cannot be had is
left out with one line of the log: its answers are the same, and take longer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

import torch
from torch import Tensor

from models.compute.attention import dense
from models.compute.cache import KVCache
from models.files.errors import first_line

log = logging.getLogger(__name__)
NEAR = 0.05
_LENGTHS = (1, 17, 40)
_BEHIND, _WIDTH = 19, 21


class _Numbers(NamedTuple):
    query: Tensor
    keys: Tensor
    values: Tensor
    table: Tensor


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

    def attend(numbers: _Numbers, _window: int | None) -> Tensor:
        from models.compute.paged_decode import paged_decode

        query, keys, values, table = numbers
        positions = torch.tensor(_LENGTHS, device=query.device) - 1
        return paged_decode(query, keys, values, table, positions, scale=query.shape[2] ** -0.5)

    return _why_not(attend, _numbers(cache, heads, len(_LENGTHS), len(_LENGTHS)), _LENGTHS, (None,))


@torch.inference_mode()
def why_no_paged_chunks(cache: KVCache, heads: int) -> str | None:
    """Why this torch cannot attend chunks over pages (paged_chunk.py), or None."""
    lengths = range(_BEHIND + 1, _BEHIND + 1 + _WIDTH)

    def attend(numbers: _Numbers, window: int | None) -> Tensor:
        from models.compute.paged_chunk import paged_chunk

        query, keys, values, table = numbers
        positions = torch.tensor(lengths, device=query.device) - 1
        return paged_chunk(query, keys, values, table, positions, scale=query.shape[2] ** -0.5, window=window)

    return _why_not(attend, _numbers(cache, heads, _WIDTH, 1), lengths, (None, _BEHIND))


def _numbers(cache: KVCache, heads: int, tokens: int, rows: int) -> _Numbers:
    """Queries of so many tokens, and pages of `rows` texts."""
    kept = cache.keys[0]
    page, kv, size = kept.shape[1:]
    chance = torch.Generator().manual_seed(1)
    width = -(-max(_LENGTHS) // page)
    numbers = [torch.randn(1 + width * rows, page, kv, size, generator=chance) for _ in range(2)]
    keys, values = (one.to(kept.device, kept.dtype) for one in numbers)
    query = torch.randn(tokens, heads, size, generator=chance).to(kept.device, kept.dtype)
    return _Numbers(query, keys, values, torch.arange(1, len(keys), device=kept.device).view(rows, width))


def _why_not(
    attend: Callable[[_Numbers, int | None], Tensor],
    numbers: _Numbers,
    lengths: Sequence[int],
    windows: Sequence[int | None],
) -> str | None:
    try:
        found = [
            (attend(numbers, window).float() - gathered(numbers, lengths, window)).abs().max() for window in windows
        ]
        off = float(torch.stack(found).max())
    except Exception as error:  # noqa: BLE001 - of a compiler, a driver, a library: whatever it is, there is another way
        return first_line(error)
    return None if off <= NEAR else "its results are others than those of torch"


def gathered(numbers: _Numbers, lengths: Sequence[int], window: int | None) -> Tensor:
    """What tokens attend that see so many others of their rows, by the products of torch."""
    query, keys, values, table = numbers
    rows = []
    for at, length in enumerate(lengths):
        first = 0 if window is None else max(0, length - window)
        pages = table[min(at, len(table) - 1)]
        key, value = (one[pages].flatten(0, 1)[first:length].transpose(0, 1)[None].float() for one in (keys, values))
        rows.append(dense(query[at : at + 1].float(), key, value, None, 1, query.shape[2] ** -0.5))
    return torch.cat(rows)
