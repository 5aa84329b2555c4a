"""What an operator sees of a worker: metrics and health."""
