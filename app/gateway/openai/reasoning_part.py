"""Which tokens of an answer are its reasoning.

Events have reasoning and text, and tokens that are neither, such as those of the tags around a reasoning. A reasoning
ends where text or a call begins.
"""

from __future__ import annotations

from collections.abc import Sequence

from app.wire.event import Logprob, TokenEvent


class ReasoningPart:
    """`tokens`: how many the reasoning has; those of an event that also has text are not counted."""

    def __init__(self) -> None:
        self.tokens = 0
        self._is_open = False

    def logprobs_of_text(self, event: TokenEvent) -> Sequence[Logprob]:
        """The log probabilities of the event's text; to be called once for each event, in order."""
        self._is_open = self._is_open or event.reasoning is not None
        if not self._is_open:
            return event.logprobs or ()
        if not event.text and not event.tool_call_deltas:
            self.tokens += len(event.tokens or ())
            return ()
        self._is_open = False
        return _last(event.logprobs or (), len(event.text or ""))


def _last(logprobs: Sequence[Logprob], characters: int) -> Sequence[Logprob]:
    """As few of the last ones as have so many characters."""
    count, left = 0, characters
    while count < len(logprobs) and left > 0:
        count += 1
        left -= len(logprobs[-count].text)
    return logprobs[len(logprobs) - count :]
