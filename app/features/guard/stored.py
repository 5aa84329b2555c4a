"""Turns without private values: as the index has them."""

from __future__ import annotations

from functools import partial

from app.features.guard.analyzer import AnalyzerError
from app.features.guard.fair_order import Asker, Patience
from app.features.guard.guard import Guard
from app.features.guard.texts import indexed_turn
from app.policy.file import Policy
from app.process.off_loop import off_loop
from app.search.index import HideError
from app.search.reindex import HideStored
from app.wire.turn import Turn


def hiding_by(policy: Policy) -> HideStored:
    """For a process that has no worker. Raises `PolicyError`."""
    return partial(hide_stored, Guard(policy))


async def hide_stored(guard: Guard, turn: Turn, secret: bytes) -> Turn:
    """The turn without private values, by the secret of its partition; raises `HideError`."""
    if not guard.rules.masks:
        return turn
    values = turn.private
    if values is None:
        about = f"turn {turn.user_id}/{turn.request_id}"
        asker = Asker(turn.user_id, turn.tenant or "", about, Patience.BACKGROUND)
        try:
            values = await guard.find([turn.prompt, turn.answer], asker)
        except AnalyzerError as error:
            raise HideError(str(error)) from error
    return await off_loop(len(turn.prompt) + len(turn.answer), partial(indexed_turn, turn, secret, values))
