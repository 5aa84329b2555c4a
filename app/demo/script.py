"""What the two users say, and what the answers must contain."""

from __future__ import annotations

from dataclasses import dataclass


class DemoError(Exception):
    """A step of the demo failed; one line for people."""


@dataclass(frozen=True, slots=True)
class Line:
    prompt: str
    expected: str | None = None  # the answer must contain it: an earlier turn mentioned it


@dataclass(frozen=True, slots=True)
class Speaker:
    user_id: str
    colour: str
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class Recall:
    """A search of what was written, in other words than were used."""

    user_id: str
    query: str
    line: int  # the user's line that it should find


SPEAKERS = (
    Speaker(
        "nina",
        "cyan",
        (
            Line("Hi, I am Nina and my order number is 48213."),
            Line("How long does delivery take?"),
            Line("What was my order number?", expected="48213"),
        ),
    ),
    Speaker(
        "omar",
        "magenta",
        (
            Line("Hello, my name is Omar."),
            Line("How can I return an item?"),
            Line("Do you remember my name?", expected="Omar"),
        ),
    ),
)
RECALL = Recall("omar", "giving back something I bought", line=1)
