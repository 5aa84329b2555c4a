"""One forward pass: packed tokens, the KV cache, attention, fused decoders, CUDA graphs."""
