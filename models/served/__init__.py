"""Models that are ready for requests: an engine with its prompts, and the report of what was loaded."""
