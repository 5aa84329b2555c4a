"""Texts become vectors of unit length, by any encoder; nothing heavy is imported before one is loaded."""

from models.embedder.embedder import Embedder, load_embedder
from models.embedder.errors import EmbedderError

__all__ = ["Embedder", "EmbedderError", "load_embedder"]
