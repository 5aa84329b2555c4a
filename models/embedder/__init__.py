"""Embedders: texts become unit vectors, with any encoder. Nothing heavy is imported before one is loaded."""

from models.embedder.embedder import Embedder, load_embedder
from models.embedder.recipe import EmbedderError

__all__ = ["Embedder", "EmbedderError", "load_embedder"]
