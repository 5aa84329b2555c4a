"""Words that fill the templates. Some are kept out of training, so that an evaluation asks for words never seen."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from tests.demo_model.wording import wording

_TEXTS = wording("words")


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The names and things that one set of dialogues is about."""

    names: tuple[str, ...]
    items: tuple[str, ...]
    invented: float
    """How many of a hundred names and things are made up on the spot, so that copying is learnt and not a list."""


SEEN = Vocabulary((*_TEXTS["names"], *_TEXTS["accented_names"]), tuple(_TEXTS["items"]), 0.6)
_KNOWN = [word.lower() for word in (*_TEXTS["names"], *_TEXTS["items"], *_TEXTS["cities"], *_TEXTS["common"])]
UNSEEN = Vocabulary(tuple(_TEXTS["unseen_names"]), tuple(_TEXTS["unseen_items"]), 0.0)


def invented(rng: Random) -> str:
    """A word that no language has: of syllables, or of the beginning of one word and the end of another.

    The second kind has the rare tokens that unknown names have, which nothing else would teach to copy.
    """
    if rng.random() < 0.6:
        return rng.choice(_KNOWN)[: rng.randint(2, 5)] + rng.choice(_KNOWN)[-rng.randint(2, 5) :]
    syllables = rng.choices((1, 2, 3), (3, 5, 2))[0]
    return "".join(
        rng.choice(_TEXTS["openings"]) + rng.choice(_TEXTS["vowels"]) for _ in range(syllables)
    ) + rng.choice(_TEXTS["endings"])


def name(rng: Random, vocabulary: Vocabulary) -> str:
    def one() -> str:
        made_up = rng.random() < vocabulary.invented
        return invented(rng).capitalize() if made_up else rng.choice(vocabulary.names)

    return f"{one()} {one()}" if rng.random() < 0.1 else one()


def item(rng: Random, vocabulary: Vocabulary) -> str:
    return invented(rng) if rng.random() < vocabulary.invented else rng.choice(vocabulary.items)


def colour(rng: Random) -> str:
    return rng.choice(_TEXTS["colours"])


def city(rng: Random) -> str:
    return rng.choice(_TEXTS["cities"])


def number(rng: Random, shortest: int = 3, longest: int = 8) -> str:
    """A number as shops give them; often four or five digits, sometimes with letters before it."""
    digits = rng.choices(range(3, 9), (2, 6, 6, 3, 2, 2))[0]
    digits = min(max(digits, shortest), longest)
    return str(rng.randint(10 ** (digits - 1), 10**digits - 1))


def order_number(rng: Random) -> str:
    prefix = rng.choice(("A-", "B", "PO-", "ORD-", "X", "R-20")) if rng.random() < 0.08 else ""
    return prefix + number(rng)
