"""Reading token events correctly: the reader rule, and a reader of the `tokens` topic that keeps it."""

from app.reader.answer import Answer
from app.reader.rule import Dropped, ReaderRule, Update

__all__ = ["Answer", "Dropped", "ReaderRule", "Update"]
