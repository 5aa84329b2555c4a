"""From tokens to text and calls of tools, one token at a time.

The text after token k is a pure function of tokens[:k]. It never ends in half a character, nor in the beginning of a
possible stop string. An answer that is resumed from its tokens therefore continues with exactly the text that its
readers lack. Each token costs the same, however long the answer is.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol
from weakref import WeakKeyDictionary

from models.interface.chat import ModelCall
from models.interface.generation import Job
from models.text.plain_dialogue import PlainAnswer, PlainStart
from models.text.reasoning import THINK, Reasoning, ReasoningReader, reasoning_tokens, tags_of
from models.tools.format import ToolFormat
from models.tools.parser import CallDelta, ToolCallParser

REPLACEMENT = "\ufffd"
NONE: Mapping[int, str] = MappingProxyType({})
_KEEPING = frozenset({"ByteLevel", "ByteFallback", "Fuse"})
_PIECES: WeakKeyDictionary[Any, tuple[int, list[bytes] | None]] = WeakKeyDictionary()
WINDOW = 64  # tokens after which text that still ends in half a character is emitted as it is


class Decoder(Protocol):
    def step(self, token: int) -> str: ...


class Vocabulary:
    """What the decoders of one tokenizer share."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer.backend_tokenizer
        self.pieces = _pieces_of(tokenizer)
        added = self.tokenizer.get_added_tokens_decoder()
        self.reasoning_tags = tags_of(tokenizer) or THINK
        self.reasoning_tokens = reasoning_tokens(tokenizer)
        self._special = {token.content: number for number, token in added.items() if token.special}

    def special(self, name: str) -> tuple[int, str] | None:
        """The special token of that name, if there is one, and its text."""
        token = self._special.get(name)
        return None if token is None else (token, name)

    def decoder(self) -> Decoder:
        return BytesDecoder(self.pieces) if self.pieces else WindowDecoder(self.tokenizer)


class BytesDecoder:
    """For byte-level tokenizers: a token is a run of bytes, and UTF-8 determines where characters end."""

    __slots__ = ("_pieces", "_utf8")

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._pieces = pieces
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def step(self, token: int) -> str:
        return self._utf8.decode(self._pieces[token]) if token < len(self._pieces) else ""


class WindowDecoder:
    """For other tokenizers: what the tokens since the last complete character add to the text of the few before
    them.
    """

    __slots__ = ("_known", "_tokenizer", "_window")

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._window: list[int] = []
        self._known = 0  # tokens of the window whose text has been emitted

    def step(self, token: int) -> str:
        self._window.append(token)
        before = self._tokenizer.decode(self._window[: self._known])
        text = self._tokenizer.decode(self._window)
        held = len(self._window) - self._known
        if len(text) <= len(before) or (text.endswith(REPLACEMENT) and held < WINDOW):
            return ""
        self._window = self._window[self._known :]
        self._known = len(self._window)
        return text[len(before) :]


class StopStrings:
    """A text up to the first of its stop strings. `held` is the possible beginning of one."""

    __slots__ = ("_first", "_longest", "_stop", "held", "stopped")

    def __init__(self, stop: Sequence[str]) -> None:
        self._stop = tuple(text for text in stop if text)
        self._longest = max(map(len, self._stop), default=0)
        self._first = frozenset(text[0] for text in self._stop)
        self.held = ""
        self.stopped = False

    def add(self, text: str) -> str:
        """What of the text so far may be shown now. After the text that completes a stop string, `stopped` is set."""
        if not self._stop or not text:
            return text
        text = self.held + text
        found = [at for at in (text.find(stop) for stop in self._stop) if at >= 0]
        if found:
            self.stopped, self.held = True, ""
            return text[: min(found)]
        keep = self._beginning(text)
        self.held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def _beginning(self, text: str) -> int:
        """Length of the longest suffix of `text` that begins a stop string."""
        for at in range(max(0, len(text) - self._longest + 1), len(text)):
            if text[at] in self._first and any(stop.startswith(text[at:]) for stop in self._stop):
                return len(text) - at
        return 0


class TextStream(StopStrings):
    """The text of one answer, with its stop strings. `spelled` are special tokens that are text all the same."""

    __slots__ = ("_decoder", "_spelled")

    def __init__(self, vocabulary: Vocabulary, stop: Sequence[str] = (), spelled: Mapping[int, str] = NONE) -> None:
        super().__init__(stop)
        self._decoder = vocabulary.decoder()
        self._spelled = spelled

    def step(self, token: int) -> str:
        """The text that `token` adds."""
        text = self._decoder.step(token)
        return self.add(self._spelled.get(token, text) if self._spelled else text)


def _pieces_of(tokenizer: Any) -> list[bytes] | None:
    """Made once for an engine and the names of its tokens: a large vocabulary takes its time, and memory."""
    size, (known, pieces) = len(tokenizer), _PIECES.get(tokenizer, (-1, None))
    if known != size:
        pieces = _byte_pieces(tokenizer.backend_tokenizer)
        _PIECES[tokenizer] = size, pieces
    return pieces


def _byte_pieces(tokenizer: Any) -> list[bytes] | None:
    """The bytes of every token, if the tokenizer is byte-level throughout."""
    if not _is_byte_level(tokenizer):
        return None
    table, ids = bytes_as_latin_1(), tokenizer.get_vocab(with_added_tokens=True)
    pieces = [b""] * (max(ids.values(), default=-1) + 1)  # ids may have holes
    added = tokenizer.get_added_tokens_decoder()
    try:
        for piece, token in ids.items():
            if token not in added:
                pieces[token] = piece.translate(table).encode("latin-1")
    except UnicodeEncodeError:  # a character that stands for no byte
        return None
    for token, one in added.items():
        pieces[token] = b"" if one.special else one.content.encode()
    return pieces


def _is_byte_level(tokenizer: Any) -> bool:
    """Whether texts are the bytes of their tokens, with decoders beside that which change nothing about these."""
    if tokenizer.decoder is None:
        return False
    written = json.loads(tokenizer.decoder.__getstate__())
    kinds = [one["type"] for one in written.get("decoders", [written])]
    return kinds.count("ByteLevel") == 1 and kinds[0] == "ByteLevel" and {*kinds} <= _KEEPING


def bytes_as_latin_1() -> dict[int, int]:
    """For `translate`: the byte that a character of byte-level BPE stands for, as a character of Latin-1.

    Printable bytes are written as themselves and the others, in order, from U+0100 on. What stands for none becomes a
    character that Latin-1 does not have.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: ord(REPLACEMENT) for byte in others} | {0x100 + number: byte for number, byte in enumerate(others)}


class TextPart(NamedTuple):
    """What tokens add to an answer: to its text, its calls and its reasoning."""

    text: str
    calls: tuple[CallDelta, ...] = ()
    reasoning: str = ""


class AnswerText:
    """Like `TextStream`; the reasoning may be separated from the text and, with a tool format, calls from what follows
    it: a reasoning that mentions a call makes none. In a `plain` dialogue what remains as text ends before the next
    speaker, after `least` tokens at the earliest.
    """

    __slots__ = ("_least", "_parser", "_plain", "_reasoning", "_stream")

    def __init__(
        self,
        vocabulary: Vocabulary,
        stop: Sequence[str],
        form: ToolFormat | None,
        reasoning: Reasoning | None = None,
        *,
        plain: PlainStart | None = None,
        least: int = 0,
    ) -> None:
        spelled = {} if form is None else _spelled(vocabulary, form)
        if reasoning is not None:
            tags = vocabulary.reasoning_tags
            spelled |= dict(filter(None, map(vocabulary.special, (tags.begin, tags.end))))
        self._stream = TextStream(vocabulary, stop, spelled)
        self._parser = None if form is None else ToolCallParser(form)
        self._reasoning = None if reasoning is None else ReasoningReader(reasoning, vocabulary.reasoning_tags)
        self._plain = None if plain is None else PlainAnswer(plain)
        self._least = least

    @classmethod
    def of(cls, vocabulary: Vocabulary, job: Job) -> AnswerText:
        return cls(vocabulary, job.stop, job.tools, job.reasoning, plain=job.plain, least=job.min_tokens)

    @property
    def stopped(self) -> bool:
        """Whether a stop string was completed, or the next speaker has begun."""
        return self._stream.stopped or (self._plain is not None and self._plain.stopped)

    @property
    def calls(self) -> tuple[ModelCall, ...]:
        """The complete calls so far."""
        return () if self._parser is None else tuple(self._parser.calls)

    def step(self, token: int) -> TextPart:
        """What `token` adds."""
        text, reasoning, calls = self._stream.step(token), "", tuple[CallDelta, ...]()
        if self._reasoning is not None:
            reasoning, text = self._reasoning.step(text)
        if self._parser is not None:
            text, calls = self._parser.step(text)
        if self._plain is not None:
            self._least -= 1
            text = self._plain.add(text, may_end=self._least < 1)
        return TextPart(text, calls, reasoning)

    def finish(self) -> TextPart:
        """What was held back, at the end of the answer."""
        text, reasoning = self._stream.held, ""
        if self._reasoning is not None:
            parts = (self._reasoning.step(text), self._reasoning.finish())
            reasoning, text = ("".join(part) for part in zip(*parts, strict=True))
        if self._parser is not None:
            text = self._parser.step(text)[0] + self._parser.finish()
        if self._plain is not None:
            text = "" if self._plain.stopped else self._plain.add(text) + self._plain.finish()
        return TextPart(text, reasoning=reasoning)


def _spelled(vocabulary: Vocabulary, form: ToolFormat) -> dict[int, str]:
    """The special tokens of the form, which are text all the same."""
    trigger = vocabulary.special(form.trigger)
    return {number: name for name, number in form.specials} | dict([trigger] if trigger else [])
