"""Inference: engines, batching, checkpoints, prompts, embeddings. Nothing here depends on Kafka or Faust.

The rooms by floor, the lowest first. A room imports rooms of lower floors alone, except for types; a test holds it to
that.

- interface, kernels, machine, demo
- tools, drawing, embedder
- text, files
- llama, prompts, structured
- linear, remote
- compute
- quantization
- checkpoints
- engine, quantizer, served, vllm
"""
