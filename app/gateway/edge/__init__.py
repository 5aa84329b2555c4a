"""HTTP itself, before a caller is known: connections, middlewares, errors, replies to readers that may be slow."""
