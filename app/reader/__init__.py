"""Reading token events correctly: the reader rule, and a consumer of the `tokens` topic that applies it."""

from app.reader.following import Following
from app.reader.position import AtOffsets, AtTime, Edge, Position
from app.reader.rule import Answer, Dropped, ReaderRule, Update
from app.reader.token_reader import TokenReader

__all__ = [
    "Answer",
    "AtOffsets",
    "AtTime",
    "Dropped",
    "Edge",
    "Following",
    "Position",
    "ReaderRule",
    "TokenReader",
    "Update",
]
