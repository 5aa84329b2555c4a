"""Judges of other packages: `[guard.judges.NAME]`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from parley_client.plugins import Judge as ForeignJudge
from parley_client.plugins import Kind, PluginError, Refused

from app.features.guard.judges.judge import JudgeError, Turn
from app.plugins.known import named
from app.plugins.running import PluginFailedError, PluginRoom


class PluggedJudge:
    """Implements `Judge` by a plug-in; raises `JudgeError` if it cannot be loaded."""

    width = 8

    def __init__(self, name: str, settings: Mapping[str, Any]) -> None:
        self.name = name
        try:
            plugin = named(Kind.JUDGES, name)
            self._judge: ForeignJudge = plugin.made(dict(settings))
            self.categories = tuple(map(str, self._judge.categories))
            self.threshold = float(self._judge.threshold)
        except PluginError as error:
            raise JudgeError(f"judges.{name}: {error}") from None
        except (AttributeError, TypeError, ValueError) as error:
            raise JudgeError(f"judges.{name}: {plugin} is no judge: {type(error).__name__}") from None
        self._room = PluginRoom(plugin)

    async def scores(self, texts: Sequence[str], turn: Turn) -> list[Mapping[str, float]]:
        try:
            async with turn():
                judged = await self._room.call(partial(self._judge.scores, list(texts)))
            scores: list[Mapping[str, float]] = [
                {str(name): float(score) for name, score in of_text.items()} for of_text in judged
            ]
        except (PluginFailedError, Refused) as error:
            raise JudgeError(str(error) if isinstance(error, PluginFailedError) else "it refuses") from None
        except (AttributeError, TypeError, ValueError):
            raise JudgeError(f"the plug-in {self.name} gave no scores") from None
        if len(scores) != len(texts) or not all(0 <= score <= 1 for one in scores for score in one.values()):
            why = f"{len(scores)} results for {len(texts)} texts, or scores beyond 0 to 1"
            raise JudgeError(f"the plug-in {self.name} gave {why}")
        return scores

    async def close(self) -> None:
        await self._room.close(self._judge.close)
