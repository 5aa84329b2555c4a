"""Related older turns stand in the prompt: `[recall]`."""
