"""The path of a request: from its acceptance to its commit."""
