"""Inference: engines, batching, checkpoints, prompts, embeddings. Nothing here depends on Kafka or Faust."""
