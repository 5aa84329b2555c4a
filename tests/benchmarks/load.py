"""What is asked, and when: open loop, so that a slow system is asked no less.

Arrivals are planned before the run begins, and every wait is counted from the planned moment: what queues in the
client, in a broker or in a server is all in the figures (no coordinated omission).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import msgspec

PROMPTS = (
    "Where is my order 4711?",
    "Hi, I am Nina. My parcel has not come yet.",
    "Can I send back a lamp that I bought last week?",
    "What does express delivery cost?",
    "My order 8152 came with a broken glass, what now?",
    "Do you sell gift cards?",
)


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """`shape` is poisson or bursts (groups of `burst` at one moment, at the same mean rate).

    With `at_once`, the loop is closed instead: so many answers are open at any time for `seconds`.
    """

    seconds: float
    rate: float = 0.0
    shape: str = "poisson"
    burst: int = 8
    at_once: int = 0
    users: int = 1000
    max_tokens: int = 32
    seed: int = 1
    prompt: str | None = None
    fresh: bool = False  # every request is a conversation of its own
    people: str = ""  # what user ids begin with; empty: strangers in every run
    each: bool = False  # every user asks once

    def arrivals(self) -> list[float]:
        """Seconds after the start, in order."""
        chance = random.Random(self.seed)
        size = self.burst if self.shape == "bursts" else 1
        found: list[float] = []
        at = chance.expovariate(self.rate / size)
        while at < self.seconds:
            found += [at] * size
            at += chance.expovariate(self.rate / size)
        return found

    def asks(self, run: str) -> Iterator[Ask]:
        """What is asked, without end; `run` keeps the ids of two runs apart."""
        chance = random.Random(self.seed + 7)
        people = self.people or run
        number = 0
        while True:
            user = f"{people}-{number if self.fresh or self.each else chance.randrange(self.users)}"
            prompt = self.prompt or chance.choice(PROMPTS)
            yield Ask(f"{run}.{number}", user, prompt, self.max_tokens)
            number += 1


class Ask(msgspec.Struct, frozen=True):
    request_id: str
    user_id: str
    prompt: str
    max_tokens: int
    temperature: float = 0.0


class Reply(msgspec.Struct):
    """Times are seconds of the clock that all processes of a machine share; `due` is the planned moment."""

    due: float
    events: list[float] = []
    tokens: int = 0
    end: float | None = None
    failed: bool = False

    def received(self, at: float, tokens: int) -> None:
        self.events.append(at)
        self.tokens += tokens

    @property
    def first(self) -> float | None:
        return self.events[0] - self.due if self.events else None

    @property
    def whole(self) -> float | None:
        return None if self.end is None else self.end - self.due

    @property
    def gaps(self) -> Sequence[float]:
        return [later - earlier for earlier, later in zip(self.events, self.events[1:], strict=False)]
