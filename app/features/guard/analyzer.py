"""Find private values in texts: Presidio's recognizers, and a spaCy pipeline for names and places.

Analysis takes some 10 ms of processor time for a sentence, so it runs in a thread of its own, in pieces, at which users
take turns. A user's last texts are remembered: prompt and answer of a turn are needed again when the turn is indexed.
What another user has sent is not, because the time of the first token would reveal it.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol

from app.features.guard.fair_order import Asker, FairOrder, Patience
from app.features.guard.packaged_pipeline import find_pipeline
from app.features.guard.remembered import Remembered
from app.policy.guard_rules import NAMED, GuardRules
from app.private.value import PrivateValue
from models.machine.known_files import UnknownFileError

if TYPE_CHECKING:
    from presidio_analyzer import AnalyzerEngine

_PIECE = 2000
"""Characters that are analyzed at once; the interpreter serves other threads in between."""
_MOST_PIECES = 32
"""Of short texts: each costs some milliseconds, however short it is."""
_OVERLAP = 128
"""Characters that two neighbouring pieces of a text share: a value across their border is whole in one of them."""
_EVERYTHING = (
    "Anna Schmidt, anna@example.com, 4111 1111 1111 1111, +49 170 1234567, 10.0.0.1, DE89 3704 0044 0532 0130 00"
)
"""Recognizers read their tables at their first value, which takes half a second: that is not to be in a request."""
_BREAK = re.compile(r"(?<=[.!?\n])\s+")

Values = tuple[PrivateValue, ...]


class AnalyzerError(Exception):
    """There is no verdict about a text; the message is one line."""


class Analyzes(Protocol):
    """What guards need of an analyzer."""

    async def find(self, texts: Sequence[str], asker: Asker) -> Values:
        """The private values in these texts, each once; raises `AnalyzerError`, and `BusyError` for a new request."""

    def forget(self, user: str) -> None:
        """Drop what is remembered of the user's texts."""


class Analyzer:
    """Implements `Analyzes` by these rules. Raises `AnalyzerError` if a package or model is missing."""

    def __init__(self, rules: GuardRules) -> None:
        self._rules = rules
        self._engine = _engine_of(rules)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="guard")
        self._turns = FairOrder(rules.timeout_s)
        self._known: Remembered[Values] = Remembered()
        self._analyze_one(_EVERYTHING)

    async def find(self, texts: Sequence[str], asker: Asker) -> Values:
        memory = self._known.of(asker.user)
        values_of = {text: memory.get(text) or () for text in dict.fromkeys(texts) if text.strip()}
        unread = [text for text in values_of if memory.get(text) is None]
        if unread:
            limit_s = None if asker.patience is Patience.BACKGROUND else self._rules.timeout_s
            try:
                with self._turns.job(asker, 1 + sum(map(len, unread)) // _PIECE, limit_s) as job:
                    for batch in _batches(unread):
                        async with job.turn():
                            batch_values = await self._in_thread([piece for _text, piece in batch])
                        for (text, _piece), values in zip(batch, batch_values, strict=True):
                            values_of[text] += values
            except TimeoutError:
                raise AnalyzerError(f"the search for private values took longer than {limit_s:g} s") from None
            for text in unread:
                memory.put(text, values_of[text])
        return tuple(dict.fromkeys(value for values in values_of.values() for value in values))

    def forget(self, user: str) -> None:
        self._known.forget(user)

    async def _in_thread(self, pieces: Sequence[str]) -> list[Values]:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._analyze, pieces)
        except Exception as error:  # noqa: BLE001 - a recognizer may raise anything, and its message may quote the text
            raise AnalyzerError(f"the search for private values failed: {type(error).__name__}") from None

    def _analyze(self, pieces: Sequence[str]) -> list[Values]:
        return [self._analyze_one(piece) for piece in pieces]

    def _analyze_one(self, piece: str) -> Values:
        text = piece.encode("utf-8", "replace").decode()  # half a character, escaped in JSON, is no text to spaCy
        results = self._engine.analyze(
            text,
            self._rules.pii_language,
            entities=list(self._rules.pii_entities),
            score_threshold=self._rules.pii_threshold,
        )
        return tuple(_without_overlaps(text, [(one.score, one.start, one.end, one.entity_type) for one in results]))


def _batches(texts: Sequence[str]) -> Iterator[list[tuple[str, str]]]:
    """The texts' pieces, each with its text, as many at a time as are analyzed in one turn."""
    batch: list[tuple[str, str]] = []
    size = 0
    for text in texts:
        for piece in _pieces(text):
            if batch and (size + len(piece) > _PIECE or len(batch) == _MOST_PIECES):
                yield batch
                batch, size = [], 0
            batch.append((text, piece))
            size += len(piece)
    if batch:
        yield batch


def _pieces(text: str) -> Iterator[str]:
    """The text in pieces that end with a sentence, or anywhere if a sentence is too long. Each but the first begins
    with the last words of the one before it.
    """
    start = begin = 0
    while len(text) - start > _PIECE:
        breaks = [match.end() for match in _BREAK.finditer(text, start + 1, start + _PIECE)]
        spaces = text.rfind(" ", start + 1, start + _PIECE) + 1
        end = breaks[-1] if breaks else spaces or start + _PIECE
        yield text[begin:end]
        start = end
        begin = max(0, end - _OVERLAP)
        begin = text.find(" ", begin, end - 1) + 1 or begin
    yield text[begin:]


def _without_overlaps(text: str, spans: Sequence[tuple[float, int, int, str]]) -> Iterator[PrivateValue]:
    """Of spans that overlap, the one with the best score counts; a pattern before a name, then the longer one."""
    kept: list[tuple[int, int]] = []
    for _score, start, end, kind in sorted(spans, key=lambda one: (-one[0], one[3] in NAMED, one[1] - one[2], one[1])):
        value = text[start:end].strip()
        is_name = any(map(str.isalpha, value)) and not any(map(str.isdigit, value))
        if any(start < other_end and other_start < end for other_start, other_end in kept):
            continue
        if value and (is_name or kind not in NAMED):
            kept.append((start, end))
            yield PrivateValue(kind, value)


def _engine_of(rules: GuardRules) -> AnalyzerEngine:
    try:
        from app.features.guard.presidio import engine_of
    except ImportError as error:
        raise AnalyzerError(f"needs the package {error.name}: install Parley with its extra `guard`") from None
    logging.getLogger("presidio-analyzer").setLevel(logging.ERROR)
    try:
        return engine_of(rules, _pipeline_of(rules))
    except ImportError as error:  # spaCy's, of a language
        raise AnalyzerError(f"pii_language: {error}".splitlines()[0]) from None
    except (OSError, ValueError) as error:
        raise AnalyzerError(f"pii_model: {error}".splitlines()[0]) from None


def _pipeline_of(rules: GuardRules) -> str | None:
    """The spaCy pipeline that finds names: a package or a folder. None if no name is asked for."""
    if not rules.needs_names:
        return None
    if rules.pii_model is not None:
        return rules.pii_model
    try:
        folder = find_pipeline()
    except UnknownFileError as error:
        raise AnalyzerError(f"pii_model: {error}") from None
    if folder is None:
        raise AnalyzerError(
            f"the entities {', '.join(sorted(NAMED))} need a pii_model: install Parley with its extra `guard`"
        )
    return str(folder)
