"""Which model answers: `[[routes]]`, `[fallback]`."""
