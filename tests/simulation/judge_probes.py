"""What a judge is asked beside the storms: the same texts again, in another order, each alone, by other workers, and in
another process. Each time a text has the same verdict, and not all texts have one.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

from parley_client.plugins import Plugin

from app.features.guard.judges.judge import JudgeError
from app.features.guard.judges.plugged import PluggedJudge
from app.plugins.running import PluginRoom
from tests.simulation import plugin_calls
from tests.simulation.plugin_calls import HOSTILE, SAID
from tests.simulation.promises import CONTAINED, IN_TIME, SAME, TELLS, Broken

Scores = Mapping[str, float]


def probe_judge(plugin: Plugin, settings: Mapping[str, Any], said: Sequence[str] = ()) -> Iterator[Broken]:
    """Texts of its settings are asked, too: they may be the words that it looks for."""
    texts = [*dict.fromkeys((*said, *SAID, *HOSTILE, *_texts_in(settings)))]
    known: dict[str, Scores] = {}
    is_whole = True
    for order in range(3):
        judge = PluggedJudge(plugin.name, settings)
        if order == 0 and not judge._room.blocks:
            yield from plugin_calls.held({"scores": partial(judge._judge.scores, [*SAID])})
        judge._room = PluginRoom(plugin, plugin_calls.BOUND_S)
        shuffled = random.Random(order).sample(texts, len(texts))
        for batch in ([shuffled, shuffled[::-1]], [[one] for one in shuffled])[order % 2]:
            for broken in _judged(judge, batch, known):
                is_whole = False
                yield broken
        if not judge._room.calls.late:
            asyncio.run(judge.close())
    if is_whole:
        yield from _told_apart(judge, known)
        there = plugin_calls.elsewhere(plugin, settings, texts, SAME)
        if isinstance(there, Broken):
            yield there
        elif changed := [text for text, scores in zip(texts, there, strict=True) if scores != known[text]]:
            yield Broken(SAME, f"{changed[0][:40]!r} has another verdict in another process")


def _judged(judge: PluggedJudge, batch: Sequence[str], known: dict[str, Scores]) -> Iterator[Broken]:
    try:
        scores = asyncio.run(judge.scores(batch, nullcontext))  # type: ignore[arg-type]
    except JudgeError as error:
        yield Broken(IN_TIME if judge._room.calls.late else CONTAINED, str(error))
        return
    except Exception as error:  # noqa: BLE001 - scores that fail when they are read; a worker contains it, too
        yield Broken(CONTAINED, f"its scores raise {type(error).__name__}")
        return
    for text, of_text in zip(batch, scores, strict=True):
        if missing := set(judge.categories) - set(of_text):
            yield Broken(CONTAINED, f"a text has no score of {sorted(missing)}")
        if known.setdefault(text, of_text) != of_text:
            sign = "again, in another order, among other texts, or by another worker"
            yield Broken(SAME, f"{text[:40]!r} has another verdict {sign}")


def _told_apart(judge: PluggedJudge, known: Mapping[str, Scores]) -> Iterator[Broken]:
    """Until a text differs from another one, nothing of the above has been seen of it."""
    if always := [name for name in judge.categories if all(one[name] >= judge.threshold for one in known.values())]:
        yield Broken(TELLS, f"all {len(known)} texts are {always[0]}, {SAID[2]!r} and those without a word, too")
    elif len({tuple(sorted(one.items())) for one in known.values()}) == 1:
        yield Broken(
            TELLS, f"none of {len(known)} texts is {' or '.join(judge.categories)}; --prompt names one that is"
        )


def _texts_in(settings: Any) -> Iterator[str]:
    if isinstance(settings, str):
        yield settings
    elif isinstance(settings, Mapping):
        for one in settings.values():
            yield from _texts_in(one)
    elif isinstance(settings, Sequence):
        for one in settings:
            yield from _texts_in(one)
