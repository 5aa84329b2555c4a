"""Decoders built like Llama, and Gemma 3, without transformers' model classes.

Importing those classes takes half of a worker's start: they import `torch._dynamo`, `torch.distributed.tensor`, sympy
and scipy. The engine computes these decoders in a forward of its own (models/compute/fused.py) and needs their
weights and shapes only. A checkpoint of another kind, or with anything in its config that is not known here, is
loaded by transformers.
"""

from models.llama.config import LlamaConfig, read_config
from models.llama.decoder import LlamaDecoder
from models.llama.loading import load_llama

__all__ = ["LlamaConfig", "LlamaDecoder", "load_llama", "read_config"]
