"""The reader rule of the light package, for events of `tokens` as Parley decodes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parley_client.reader import Dropped, Key

if TYPE_CHECKING:
    from parley_client import reader

    from app.wire.event import TokenEvent

    Answer = reader.Answer[TokenEvent]
    ReaderRule = reader.ReaderRule[TokenEvent]
    Update = reader.Update[TokenEvent]
else:
    from parley_client.reader import Answer, ReaderRule, Update

__all__ = ["Answer", "Dropped", "Key", "ReaderRule", "Update"]
