"""Inference: engines, batching, checkpoints, prompts, embeddings. Nothing here depends on Kafka or Faust.

The rooms by floor, the lowest first. A room imports rooms of lower floors alone, except for types; a test holds it to
that.

- interface, machine, demo: what an engine is asked; GPU, memory, what was measured; the demo's checkpoint
- kernels: those of a CPU
- tools, drawing, embedder: calls in a text; the next token; vectors of texts
- text, files: from ids to text and calls; the files of a checkpoint, before anything is loaded
- llama, prompts, structured: decoders of that family; from messages to ids; grammars
- weights, remote: the form of a weight, and its product; servers that speak OpenAI's API
- compute: one forward pass
- checkpoints: from a name to a loaded model
- engine, served, vllm: scheduler and its thread; models that are ready; vLLM
"""
