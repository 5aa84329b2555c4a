"""How people type: one of many wordings, in lower case, without punctuation, shortened, mistyped.

A template is text with choices, `[Hi|Hello] there`, which may be nested, and `{values}`, which are typed as they are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from random import Random

_CHOICE = re.compile(r"\[([^\[\]]*)\]")
_SPACES = re.compile(r" +")
_SHORT_FORMS = {
    "I am": "I'm",
    "I have": "I've",
    "I would": "I'd",
    "hat is": "hat's",  # what, that
    "here is": "here's",  # where, there
    "ho is": "ho's",
    "it is": "it's",
    "do not": "don't",
    "does not": "doesn't",
    "did not": "didn't",
    "has not": "hasn't",
    "cannot": "can't",
    " you ": " u ",
    "please": "pls",
}
_OPENERS = "[Hi|Hello|Hey|Good morning|Okay|So|Well|Thanks|Great|One more thing|Another question|Quick question|Also]"
_ASIDES = (
    "[It is|This is] [really|very|quite|] [urgent|important|annoying|strange].",
    "[It is|It was] a [present|gift] for my [mother|wife|son|friend|boss|sister].",
    "I [need|wanted] it [by Friday|tomorrow|for a party|this week|for my holiday].",
    "I have been [a customer for years|waiting for days|very patient|happy with you so far].",
    "I [tried|looked] [everything|on your page|in my emails|twice|for an hour] [already|].",
    "I [hope|think|guess] [you can help|this is the right place|that is okay|you know].",
)
_CLOSERS = ("please", "thanks", "thank you", "thanks in advance", "can you help me", "I hope you can help")


def seeded(seed: str) -> Random:
    return Random(seed)


def expand(rng: Random, template: str) -> str:
    """One of the wordings that `template` stands for."""
    while (filled := _CHOICE.sub(lambda match: rng.choice(match[1].split("|")), template)) != template:
        template = filled
    return _SPACES.sub(" ", template).strip().replace(" ?", "?").replace(" .", ".").replace(" ,", ",").lstrip(",.! ")


@dataclass(frozen=True, slots=True)
class Style:
    """The habits of one person at the keyboard."""

    lower: bool
    unpunctuated: bool
    shortens: bool
    mistypes: bool
    chatty: bool

    @classmethod
    def of_somebody(cls, rng: Random) -> Style:
        lower = rng.random() < 0.3
        return cls(
            lower=lower,
            unpunctuated=rng.random() < (0.7 if lower else 0.2),
            shortens=rng.random() < 0.5,
            mistypes=rng.random() < 0.12,
            chatty=rng.random() < 0.25,
        )

    def typed(self, rng: Random, template: str) -> str:
        """`template` as this person types it; its `{values}` still stand."""
        text = expand(rng, template)
        if self.chatty and rng.random() < 0.5:
            text = _wrapped(rng, text)
        if self.chatty and rng.random() < 0.25:
            aside = expand(rng, rng.choice(_ASIDES))
            text = rng.choice((f"{aside} {text}", f"{text} {aside}"))
        if self.shortens:
            text = _shortened(rng, text)
        if self.mistypes:
            text = " ".join(_mistyped(rng, word) if rng.random() < 0.1 else word for word in text.split(" "))
        if self.unpunctuated:
            text = text.rstrip(".?!")
        elif rng.random() < 0.05:
            text = text.rstrip(".?!") + rng.choice(("!", "??", "!!", "...", " ?"))
        return text.lower() if self.lower else text


def _wrapped(rng: Random, text: str) -> str:
    if rng.random() < 0.6:
        keep = text.startswith(("I ", "I'", "{"))
        return (
            expand(rng, _OPENERS)
            + rng.choice((", ", ", ", ". ", " "))
            + (text if keep else text[:1].lower() + text[1:])
        )
    return text.rstrip(".?!") + rng.choice((", ", " ", ". ")) + rng.choice(_CLOSERS) + rng.choice(".?")


def _shortened(rng: Random, text: str) -> str:
    for long, short in _SHORT_FORMS.items():
        if long in text and rng.random() < 0.6:
            text = text.replace(long, short.replace("'", "") if rng.random() < 0.2 else short)
    return text


def _mistyped(rng: Random, word: str) -> str:
    if len(word) < 4 or not word.isalpha():
        return word
    at = rng.randrange(1, len(word) - 1)
    swapped = word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    return rng.choice((swapped, word[:at] + word[at + 1 :], word[:at] + word[at] + word[at:]))
