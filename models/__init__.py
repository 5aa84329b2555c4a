"""What thinks: engines, batching, checkpoints, prompts, embeddings. Nothing here knows of Kafka or Faust."""
