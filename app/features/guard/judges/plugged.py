"""Judges behind the door for plug-ins: those of other packages, `[guard.judges.NAME]`, and three of Parley's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from parley_client.plugins import Judge as PublicJudge
from parley_client.plugins import Kind, PluginError, Refused
from parley_client.plugins.judges import turns

from app.features.guard.judges.judge import JudgeError, Turn
from app.plugins.known import named
from app.plugins.running import PluginFailedError, PluginRoom


class PluggedJudge:
    """Implements `Judge` by a plug-in; raises `JudgeError` if it cannot be loaded."""

    def __init__(self, name: str, settings: Mapping[str, Any]) -> None:
        self.name = name
        try:
            plugin = named(Kind.JUDGES, name)
            self._judge: PublicJudge = plugin.made(dict(settings))
            self.categories = tuple(map(str, self._judge.categories))
            self.threshold = float(self._judge.threshold)
            self.width = int(getattr(self._judge, "width", PublicJudge.width))
        except PluginError as error:
            if isinstance(error.__cause__, JudgeError):
                raise error.__cause__ from None
            raise JudgeError(f"judges.{name}: {error}") from None
        except (AttributeError, TypeError, ValueError) as error:
            raise JudgeError(f"judges.{name}: {plugin} is no judge: {type(error).__name__}") from None
        if self.width < 1:
            raise JudgeError(f"judges.{name}: the width of {plugin} is {self.width}; 1 at least")
        self._room = PluginRoom(plugin, blocks=bool(getattr(self._judge, "blocks", True)))

    async def scores(self, texts: Sequence[str], turn: Turn) -> list[Mapping[str, float]]:
        judged = await (self._on_its_thread(texts, turn) if self._room.blocks else self._here(texts, turn))
        try:
            scores: list[Mapping[str, float]] = [
                {str(name): float(score) for name, score in of_text.items()} for of_text in judged
            ]
        except (AttributeError, TypeError, ValueError):
            raise JudgeError(f"the judge {self.name} gave no scores") from None
        if len(scores) != len(texts) or not all(0 <= score <= 1 for one in scores for score in one.values()):
            why = f"{len(scores)} results for {len(texts)} texts, or scores beyond 0 to 1"
            raise JudgeError(f"the judge {self.name} gave {why}")
        return scores

    async def close(self) -> None:
        await self._room.close(self._judge.close)

    async def _on_its_thread(self, texts: Sequence[str], turn: Turn) -> Sequence[Mapping[str, float]]:
        try:
            async with turn():
                judged: Sequence[Mapping[str, float]] = await self._room.call(partial(self._judge.scores, list(texts)))
        except PluginFailedError as error:
            why = str(error.__cause__) if isinstance(error.__cause__, JudgeError) else str(error)
            raise JudgeError(why) from None
        except Refused:
            raise JudgeError("it refuses") from None
        return judged

    async def _here(self, texts: Sequence[str], turn: Turn) -> Sequence[Mapping[str, float]]:
        """Its turns have their bound, and what it raises is told as that of any judge."""
        before = turns.set(turn)
        try:
            return await self._judge.scores(list(texts))
        except SystemExit:
            raise JudgeError(f"the judge {self.name} failed: SystemExit") from None
        finally:
            turns.reset(before)
