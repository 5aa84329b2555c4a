"""What computes a checkpoint, by the settings and this machine: data type, forms of the products, threads.

It is part of the model's version, because other arithmetic gives other logits: a resumed answer must not change
between the two in silence.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Any

import torch

from models.weights.choice import SMALL, FormChoice, Sizes, choose
from models.weights.forms import PLAIN, Kind, Products
from models.weights.int8 import onednn_why_not, why_not
from models.weights.stored import why_not as stored_why_not

log = logging.getLogger(__name__)
FLOAT32_AT_MOST = 4 << 30
"""Bytes of weights that may still be converted to float32 on a CPU. Those of more stay as they are stored."""
INT8, INT8_VOCABULARY = "int8", "int8-vocabulary"
INTEGERS = frozenset({INT8, INT8_VOCABULARY})
_FORMS = {
    "auto": [Kind.PLAIN, Kind.PACKED, Kind.STORED],
    "plain": [Kind.PLAIN],
    "packed": [Kind.PACKED],
    "stored": [Kind.STORED],
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """The settings of these names."""

    dtype: str = "auto"
    quantize: str = ""
    products: str = "auto"
    threads: int = 0


def without_what_is_slower(wanted: Wanted, device: torch.device) -> Wanted:
    """A GPU has no products of these integers: it would widen each weight for each product."""
    if device.type != "cuda" or wanted.quantize != INT8:
        return wanted
    log.warning("int8 is left out: on a GPU it is slower than bfloat16; fp8 takes as little memory as int8")
    return replace(wanted, quantize="")


def is_served_as_it_is(wanted: Wanted, device: torch.device) -> bool:
    """Whether its linear layers are to be plain, packed or of integers; not by weights that are widened for each
    product (models/weights/narrow.py), which is what `fp8` and a device without such integers have.
    """
    return not wanted.quantize or (wanted.quantize in INTEGERS and why_not(device) is None)


def arithmetic(
    wanted: Wanted, device: torch.device, config: Any, weight_bytes: int, *, is_packed_already: bool = False
) -> FormChoice:
    """`config` is one of transformers, `weight_bytes` those of the files. `is_packed_already`: the layers have kernels
    of their own, which are fast in bfloat16.
    """
    if wanted.dtype != "auto":
        dtypes = [getattr(torch, wanted.dtype)]
    elif device.type != "cpu" or is_packed_already:
        dtypes = [torch.bfloat16]
    else:
        dtypes = _dtypes(wanted.quantize, config, weight_bytes)
    if device.type != "cpu":
        return FormChoice(dtypes[0])
    widens = weight_bytes <= FLOAT32_AT_MOST or wanted.dtype != "auto"
    allowed = {
        dtype: forms
        for dtype in dtypes
        if (forms := _allowed(wanted, dtype, widens=widens, is_packed_already=is_packed_already))
    }
    if not allowed:
        raise ValueError(f"PARLEY_PRODUCTS={wanted.products}: {stored_why_not(dtypes[0])}; choose other products")
    sizes = Sizes.of(config)
    if weight_bytes < SMALL or sizes is None:
        return next(FormChoice(dtype, forms[0]) for dtype, forms in allowed.items())
    return choose(sizes, allowed, wanted.threads)


def stored_dtype(choice: FormChoice, config: Any) -> torch.dtype:
    """In which the weights are read: their own where they are put into other forms, one after the other."""
    if choice.dtype is torch.float32 and choice.products != PLAIN:
        return next((one for one in (torch.bfloat16, torch.float16) if one is config.dtype), choice.dtype)
    return choice.dtype


def _allowed(wanted: Wanted, dtype: torch.dtype, *, widens: bool, is_packed_already: bool) -> list[Products]:
    """By `wanted`, and on this CPU, to compute in `dtype`; unless it `widens` weights, float32 has them as stored."""
    keeps_or_widens = widens or dtype is not torch.float32
    forms = [
        one
        for one in _FORMS[wanted.products]
        if (stored_why_not(dtype) is None if one is Kind.STORED else keeps_or_widens)
    ]
    if is_packed_already:
        return [Products(Kind.PLAIN, form) for form in forms]
    if wanted.quantize not in INTEGERS:
        return [Products(form, form) for form in forms]
    integers = [Kind.INT8] if onednn_why_not() else [Kind.INT8, Kind.INT8_ONEDNN]
    if wanted.quantize == INT8:
        return [Products(kind, kind) for kind in integers]
    return [Products(form, kind) for form in forms for kind in integers]


def _dtypes(quantize: str, config: Any, weight_bytes: int) -> list[torch.dtype]:
    if quantize == INT8:
        return [torch.float32]  # what FBGEMM takes and returns
    if config.dtype is not torch.bfloat16:
        return [torch.bfloat16 if weight_bytes > FLOAT32_AT_MOST else torch.float32]
    both = [torch.float32, torch.bfloat16]
    return both[::-1] if weight_bytes > FLOAT32_AT_MOST else both


def version_of(
    choice: FormChoice,
    device: torch.device,
    quantization: str,
    *,
    by_kernels: bool = False,
    has_narrow_cache: bool = False,
) -> str:
    """Empty for plain float32 on a CPU. `quantization` names layers that have kernels of their own; `by_kernels` is
    about what is between the products (models/kernels), whose last bits only show where numbers are rounded;
    `has_narrow_cache` about keys and values (models/compute/fused.py, `cache_dtype`).
    """
    layers, vocabulary = choice.products.layers, choice.products.vocabulary
    form = next((f"-{one}" for one in (Kind.PACKED, Kind.STORED) if one in (layers, vocabulary)), "")
    name = str(choice.dtype).removeprefix("torch.")
    # Workers before it rounded a lone row by sums in another order, which readers of a resumed answer would notice.
    by_row = "-by-row" if device.type == "cpu" and choice.dtype is not torch.float32 else ""
    named = f"{name}{form}{by_row}-{device.type}"
    if vocabulary.is_integer:
        quantization = "w8a8" if layers.is_integer else "w8a8-vocabulary"
    found = "+".join(filter(None, ("" if named == "float32-cpu" else named, quantization)))
    if not (found and by_kernels):
        return found
    return f"{found}+kernels-bfloat16-cache" if has_narrow_cache else f"{found}+kernels"
