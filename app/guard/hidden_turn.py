"""A record of `turns` as the index has it."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from app.wire.turn import Turn
from models.private.mask import Mask
from models.private.value import PrivateValue


def hidden_turn(turn: Turn, secret: bytes, values: Iterable[PrivateValue]) -> Turn:
    """With placeholders instead of these values."""
    mask = Mask(secret, turn.user_id, values)
    return replace(turn, prompt=mask.hide(turn.prompt), answer=mask.hide(turn.answer))
