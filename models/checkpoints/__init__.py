"""From the name of a model to loaded weights."""
