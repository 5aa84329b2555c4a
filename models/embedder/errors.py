from __future__ import annotations


class EmbedderError(Exception):
    """The embedder cannot be used; the message is one line with the cause and the remedy."""
