"""From the name of a model to loaded weights, and the report of what was loaded."""
