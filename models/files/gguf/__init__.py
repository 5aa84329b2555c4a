"""Models in llama.cpp's format: a GGUF file is converted, once, into a folder that every engine loads.

Weights are dequantized by transformers' reader. The tokenizer is built here, from the file's own tokens, scores and
merges: transformers makes one that knows no merges out of some files, in silence.
"""

from models.files.gguf.conversion import convert_gguf

__all__ = ["convert_gguf"]
