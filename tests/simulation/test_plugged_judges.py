"""The kit for plug-ins, of judges: one that keeps its promises passes, and each planted fault is named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from parley_client.plugins import Kind

from tests.plugin_packages import on_the_path, put_package
from tests.simulation.plugged import check
from tests.simulation.promises import CLEAN, CONTAINED, IN_TIME, SAME, STARTS, TELLS

SOURCE = """
import asyncio
import time
from parley_client.plugins import Judge


class Fair(Judge):
    categories = ("rude",)

    def __init__(self, settings):
        self.words = settings["words"]

    async def scores(self, texts):
        return [{"rude": float(any(word in text for word in self.words))} for text in texts]


class Yes(Fair):
    async def scores(self, texts):
        return [{"rude": 0.9} for text in texts]


class Deaf(Fair):
    async def scores(self, texts):
        return [{"rude": 0.0} for text in texts]


class Skipping(Fair):
    async def scores(self, texts):
        return await super().scores([text for text in texts if text.strip()])


class Nameless(Fair):
    async def scores(self, texts):
        return [one if one["rude"] else {} for one in await super().scores(texts)]


class Sorting(Fair):
    async def scores(self, texts):
        return await super().scores(sorted(texts))


class Picky(Fair):
    async def scores(self, texts):
        return [{"rude": float(text.index("word") > 0)} for text in texts]


class Lazy(Fair):
    async def scores(self, texts):
        return ({"rude": {}[text]} for text in texts)


class Slow(Fair):
    async def scores(self, texts):
        time.sleep(0.3)
        return await super().scores(texts)


class Holding(Slow):
    blocks = False


class Endless(Fair):
    blocks = False

    async def scores(self, texts):
        await asyncio.Event().wait()


class Closed(Fair):
    width = 0


class Weary(Fair):
    # It blames who says a thing twice.

    def __init__(self, settings):
        super().__init__(settings)
        self.read = set()

    async def scores(self, texts):
        again = [text in self.read for text in texts]
        self.read |= {*texts}
        return [{"rude": float(one)} for one in again]


class Crowd(Fair):
    async def scores(self, texts):
        scores = await super().scores(texts)
        return [max(scores, key=lambda one: one["rude"])] * len(texts)


class Hashing(Fair):
    async def scores(self, texts):
        return [{"rude": hash(text) % 1000 / 1000} for text in texts]


class Greedy(Fair):
    def __init__(self, settings):
        self.words = [settings["words"].pop()]
"""
_FAULTS = {
    "yes": TELLS,
    "deaf": TELLS,
    "skipping": CONTAINED,
    "nameless": CONTAINED,
    "sorting": SAME,
    "picky": CONTAINED,
    "lazy": CONTAINED,
    "slow": IN_TIME,
    "holding": CLEAN,
    "endless": IN_TIME,
    "closed": STARTS,
    "weary": SAME,
    "crowd": SAME,
    "hashing": SAME,
    "greedy": STARTS,
}
_WORDS: dict[str, Any] = {"words": ["a swear word", "another", "a third one", "the last one"]}


@pytest.fixture(autouse=True)
def judges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A busy machine is no sign."""
    monkeypatch.setattr("tests.simulation.plugin_calls.BOUND_S", 60.0)
    names = ("fair", *_FAULTS)
    put_package(tmp_path, SOURCE, {Kind.JUDGES: {name: f"doubtful:{name.title()}" for name in names}}, "doubtful")
    with on_the_path(tmp_path):
        yield


def test_a_judge_that_keeps_its_promises_passes() -> None:
    (checked,) = check("fair", _WORDS, seeds=9)
    assert checked.broken == ()
    assert checked.storms == 9


@pytest.mark.parametrize(("name", "promise"), _FAULTS.items())
def test_a_planted_fault_is_found_and_named(name: str, promise: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if promise == IN_TIME:
        monkeypatch.setattr("tests.simulation.plugin_calls.BOUND_S", 0.1)
    (checked,) = check(name, {"words": [*_WORDS["words"]]}, seeds=int(promise == STARTS))
    assert promise in {one.promise for one in checked.broken}, checked.broken


def test_a_judge_is_told_apart_by_a_text_that_it_knows() -> None:
    (checked,) = check("fair", {"words": {"gosh": 1}}, seeds=0)
    assert [one.promise for one in checked.broken] == [TELLS]
    (checked,) = check("fair", {"words": {"gosh": 1}}, seeds=0, said=("gosh!",))
    assert checked.broken == ()
