"""Put the layers of a GPTQ checkpoint into the model that transformers builds.

transformers creates the model, places buffers and loads what is not quantized. Its quantizer hook puts a slot where the
checkpoint has quants, and each slot becomes a packed layer when all tensors are there. The files are read here, because
AutoGPTQ uses its own file names.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import AutoModelForCausalLM
from transformers.quantizers import HfQuantizer, register_quantization_config, register_quantizer
from transformers.utils.quantization_config import QuantizationConfigMixin

from models.weights.gptq import V1, V2, QuantizationError, layer_bits, read_layer
from models.weights.int4 import GptqWeight, why_not
from models.weights.layer import ServedLinear, plain_linear
from models.weights.replacing import is_linear, put, weight_and_bias

log = logging.getLogger(__name__)
METHOD = "parley-gptq"
PARTS = ("qweight", "qzeros", "scales", "g_idx", "bias")


@dataclass(frozen=True, slots=True)
class Quantized:
    """The quantization section of a checkpoint's config. `symmetric_bits`: layers of so many bits are symmetric."""

    checkpoint_format: str
    symmetric_bits: int | None = None
    name: str = "gptq"


def gptq_config(folder: Path, config: Any) -> Quantized | None:
    """The quantization of a checkpoint, None for a plain one; raises `QuantizationError` if it is not supported."""
    quantization = getattr(config, "quantization_config", None) or _of_file(folder / "quantize_config.json")
    if not quantization:
        return None
    if hasattr(quantization, "to_dict"):
        quantization = quantization.to_dict()
    if not isinstance(quantization, dict):
        raise QuantizationError("its quantization config is no JSON object; fetch quantize_config.json again")
    method = str(quantization.get("quant_method") or "gptq")
    if method != "gptq":
        raise QuantizationError(f"it is quantized with {method}; of quantized checkpoints the engine reads GPTQ")
    kind = "marlin" if quantization.get("is_marlin_format") else str(quantization.get("checkpoint_format") or V1)
    if kind not in (V1, V2):
        raise QuantizationError(f"its checkpoint_format is {kind}; {V1} and {V2} are read")
    is_uniform = quantization.get("sym") is True and not quantization.get("dynamic")
    return Quantized(kind, quantization.get("bits") if is_uniform else None)


def _of_file(path: Path) -> Any:
    try:
        return json.loads(path.read_text()) if path.is_file() else None
    except ValueError as error:
        raise QuantizationError(f"{path.name} is not JSON: {error}") from None


def load_gptq(
    folder: Path, config: Any, quantized: Quantized, dtype: torch.dtype, device: torch.device, *, remote_code: bool
) -> tuple[Any, dict[str, Any], str]:
    """The model on `device`, transformers' loading report, and the name of its quantization, such as `gptq4`.

    Raises `QuantizationError`. A layer without a fast kernel is dequantized once, with a warning that says why.
    """
    state: dict[str, Tensor] = {}
    for path in sorted(folder.glob("*.safetensors")):
        tensors = load_file(path)
        if twice := sorted(name for name in tensors.keys() & state if not torch.equal(tensors[name], state[name])):
            raise QuantizationError(f"{twice[0]} is in two of its files, and differs; remove one of them")
        state |= tensors
    names = {name.removesuffix(".qweight") for name in state if name.endswith(".qweight")}
    if not names:
        raise QuantizationError("its config says GPTQ, and its files hold no quantized layer")
    vars(config).pop("quantization_config", None)
    with torch.device("meta"):
        empty = AutoModelForCausalLM.from_config(config, trust_remote_code=remote_code)
    config.quantization_config = {"quant_method": METHOD, "layers": {name: _parts(state, name) for name in names}}
    model, info = type(empty).from_pretrained(
        None, config=config, state_dict=state, dtype=dtype, output_loading_info=True
    )
    del state
    model.hf_quantizer.remove_quantization_config(model)
    expected = {name: weight.shape for name, weight in empty.named_parameters()}
    for name, weight in model.named_parameters():
        if weight.shape != expected[name]:  # with a quantizer transformers does not check this
            raise QuantizationError(f"{name} is {list(weight.shape)}, and its config says {list(expected[name])}")
    bits = _fill(model, quantized, dtype, device)
    return model.to(device), info, f"gptq{'+'.join(map(str, sorted(bits)))}"


def _parts(state: Mapping[str, Tensor], name: str) -> dict[str, tuple[int, ...]]:
    return {part: tuple(state[f"{name}.{part}"].shape) for part in PARTS if f"{name}.{part}" in state}


class Slot(nn.Module):
    """Receives a layer's tensors while transformers loads them."""

    def __init__(self, inputs: int, outputs: int, parts: Mapping[str, tuple[int, ...]], dtype: torch.dtype) -> None:
        super().__init__()
        self.inputs, self.outputs = inputs, outputs
        kinds = {"scales": torch.float32, "bias": dtype}
        for part, shape in parts.items():
            empty = torch.empty(shape, dtype=kinds.get(part, torch.int32), device="meta")
            self.register_buffer(part, empty)


@register_quantization_config(METHOD)
class _Config(QuantizationConfigMixin):
    def __init__(self, layers: dict[str, dict[str, tuple[int, ...]]], **_: Any) -> None:
        self.quant_method = METHOD
        self.layers = layers


@register_quantizer(METHOD)
class _Quantizer(HfQuantizer):
    is_trainable = False

    def is_serializable(self) -> bool:
        return False

    def _process_model_before_weight_loading(self, model: Any, **_: Any) -> None:
        for name, parts in self.quantization_config.layers.items():
            put(model, name, _slot(model, name, parts))


def _slot(model: Any, name: str, parts: Mapping[str, tuple[int, ...]]) -> Slot:
    try:
        there = model.get_submodule(name)
    except AttributeError:
        there = None
    if not (isinstance(there, nn.Linear) or is_linear(there)):
        raise QuantizationError(f"its quantized layer {name} is no linear layer of the model")
    outputs, inputs = weight_and_bias(there)[0].shape
    if absent := {"qweight", "qzeros", "scales"} - parts.keys():
        raise QuantizationError(f"its quantized layer {name} has no {', '.join(sorted(absent))}")
    if there.bias is not None and "bias" not in parts:
        raise QuantizationError(f"its quantized layer {name} has no bias, and the model's has one")
    return Slot(inputs, outputs, parts, there.weight.dtype)


def _fill(model: Any, quantized: Quantized, dtype: torch.dtype, device: torch.device) -> set[int]:
    """Turn every slot into its layer; returns the bits that were found."""
    slots = [(name, module) for name, module in model.named_modules() if isinstance(module, Slot)]
    bits: set[int] = set()
    plain: Counter[str] = Counter()
    for name, slot in slots:
        tensors = dict(slot.named_buffers())
        its_bits = layer_bits(name, tensors["qweight"], slot.inputs, slot.outputs)
        bits.add(its_bits)
        layer = read_layer(
            name,
            tensors,
            slot.inputs,
            slot.outputs,
            quantized.checkpoint_format,
            is_symmetric=its_bits == quantized.symmetric_bits,
        )
        bias = tensors.get("bias")
        if reason := why_not(slot.outputs, slot.inputs, layer.group_size, device, dtype):
            plain[reason] += 1
            put(model, name, plain_linear(layer.dequantized().to(device, dtype), bias))
        else:
            put(model, name, ServedLinear(GptqWeight(layer, bias, device), slot.inputs, slot.outputs))
    for reason, count in plain.items():
        log.warning(
            "%d of %d quantized layers have no fast kernel (%s): they were dequantized to %s and take its memory",
            *(count, len(slots), reason, str(dtype).removeprefix("torch.")),
        )
    return bits
