"""Quantized weights: GPTQ checkpoints, and plain checkpoints quantized while they are loaded.

`gptq` reads the format of AutoGPTQ and GPTQModel, `int4` is the product with packed weights, `linear` and `weight_only`
are the layers that replace the model's own, `loading` puts them there. The engine is unaffected: a quantized layer
takes and returns what `nn.Linear` does.
"""

from models.quantization.gptq import QuantizationError
from models.quantization.loading import Quantized, gptq_config, load_gptq
from models.quantization.weight_only import WeightOnly, quantize_weights

__all__ = ["QuantizationError", "Quantized", "WeightOnly", "gptq_config", "load_gptq", "quantize_weights"]
