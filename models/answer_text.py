"""An answer's tokens as plain text and calls of tools."""

from __future__ import annotations

from collections.abc import Sequence

from models.chat import ToolCall
from models.detokenizer import TextStream, Vocabulary
from models.tools.format import ToolFormat
from models.tools.parser import CallDelta, ToolCallParser


class AnswerText:
    """Like `TextStream`; with a tool format, calls are separated from the text."""

    __slots__ = ("_parser", "_stream")

    def __init__(self, vocabulary: Vocabulary, stop: Sequence[str], form: ToolFormat | None) -> None:
        self._stream = TextStream(vocabulary, stop, {} if form is None else _spelled(vocabulary, form))
        self._parser = None if form is None else ToolCallParser(form)

    @property
    def stopped(self) -> bool:
        """Whether a stop string was completed."""
        return self._stream.stopped

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The complete calls so far."""
        return () if self._parser is None else tuple(self._parser.calls)

    def step(self, token: int) -> tuple[str, tuple[CallDelta, ...]]:
        """The text and the parts of calls that `token` adds."""
        text = self._stream.step(token)
        return (text, ()) if self._parser is None else self._parser.step(text)

    def finish(self) -> str:
        """The text that was held back, at the end of the answer."""
        if self._parser is None:
            return self._stream.held
        text, _ = self._parser.step(self._stream.held)
        return text + self._parser.finish()


def _spelled(vocabulary: Vocabulary, form: ToolFormat) -> dict[int, str]:
    """The special tokens of the form, which are text all the same."""
    trigger = vocabulary.special(form.trigger)
    return {number: name for name, number in form.specials} | dict([trigger] if trigger else [])
