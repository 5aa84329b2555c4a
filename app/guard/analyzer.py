"""Find private values in texts: Presidio's recognizers, and a spaCy pipeline for names and places.

Analysis takes some 10 ms of processor time for a sentence, so it runs in a thread of its own, in pieces, and the last
texts are remembered: prompt and answer of a turn are needed again when the turn is indexed.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol

from cachetools import LRUCache

from app.guard.digest import digest_of
from app.guard.packaged_pipeline import find_pipeline
from app.policy.guard_rules import NAMED, GuardRules
from models.known_files import UnknownFileError
from models.private.value import PrivateValue

if TYPE_CHECKING:
    from presidio_analyzer import AnalyzerEngine

_REMEMBERED = 4096
_PIECE = 2000
"""Characters that are analyzed at once; the interpreter serves other threads in between."""
_BREAK = re.compile(r"(?<=[.!?\n])\s+")


class AnalyzerError(Exception):
    """There is no verdict about a text; the message is one line."""


class Analyzes(Protocol):
    """What guards need of an analyzer."""

    async def find(self, texts: Sequence[str]) -> tuple[PrivateValue, ...]:
        """The private values in these texts, each once; raises `AnalyzerError`."""


class Analyzer:
    """Implements `Analyzes` by these rules. Raises `AnalyzerError` if a package or model is missing."""

    def __init__(self, rules: GuardRules) -> None:
        self._rules = rules
        self._engine = _engine_of(rules)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="guard")
        self._known: LRUCache[bytes, tuple[PrivateValue, ...]] = LRUCache(_REMEMBERED)

    async def find(self, texts: Sequence[str]) -> tuple[PrivateValue, ...]:
        found: dict[PrivateValue, None] = {}
        try:
            async with asyncio.timeout(self._rules.timeout_s):
                for text in texts:
                    found |= dict.fromkeys(await self._find(text))
        except TimeoutError:
            raise AnalyzerError(f"the search for private values took longer than {self._rules.timeout_s:g} s") from None
        return tuple(found)

    async def _find(self, text: str) -> tuple[PrivateValue, ...]:
        if not text.strip():
            return ()
        name = digest_of(text)
        if (known := self._known.get(name)) is not None:
            return known
        try:
            found = await asyncio.get_running_loop().run_in_executor(self._thread, self._analyze, text)
        except Exception as error:  # noqa: BLE001 - a recognizer may raise anything, and its message may quote the text
            raise AnalyzerError(f"the search for private values failed: {type(error).__name__}") from None
        self._known[name] = found
        return found

    def _analyze(self, text: str) -> tuple[PrivateValue, ...]:
        values: dict[PrivateValue, None] = {}
        for piece in _pieces(text):
            found = self._engine.analyze(
                piece,
                self._rules.pii_language,
                entities=list(self._rules.pii_entities),
                score_threshold=self._rules.pii_threshold,
            )
            spans = [(one.score, one.start, one.end, one.entity_type) for one in found]
            values |= dict.fromkeys(_settled(piece, spans))
        return tuple(values)


def _pieces(text: str) -> Iterator[str]:
    """The text in pieces that end with a sentence, or anywhere if a sentence is too long."""
    start = 0
    while len(text) - start > _PIECE:
        breaks = [found.end() for found in _BREAK.finditer(text, start + 1, start + _PIECE)]
        spaces = text.rfind(" ", start + 1, start + _PIECE) + 1
        end = breaks[-1] if breaks else spaces or start + _PIECE
        yield text[start:end]
        start = end
    yield text[start:]


def _settled(text: str, spans: Sequence[tuple[float, int, int, str]]) -> Iterator[PrivateValue]:
    """Of spans that overlap, the one with the best score counts; a pattern before a name, then the longer one."""
    taken: list[tuple[int, int]] = []
    for _score, start, end, kind in sorted(spans, key=lambda one: (-one[0], one[3] in NAMED, one[1] - one[2], one[1])):
        value = text[start:end].strip()
        is_name = any(map(str.isalpha, value)) and not any(map(str.isdigit, value))
        if any(start < other_end and other_start < end for other_start, other_end in taken):
            continue
        if value and (is_name or kind not in NAMED):
            taken.append((start, end))
            yield PrivateValue(kind, value)


def _engine_of(rules: GuardRules) -> AnalyzerEngine:
    try:
        from app.guard.presidio import engine_of  # noqa: PLC0415 - imports spaCy, which takes seconds
    except ImportError as error:
        raise AnalyzerError(f"needs the package {error.name}: install parley[guard]") from None
    logging.getLogger("presidio-analyzer").setLevel(logging.ERROR)
    try:
        return engine_of(rules, _pipeline_of(rules))
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
        raise AnalyzerError(f"the entities {', '.join(sorted(NAMED))} need a pii_model: install parley[guard]")
    return str(folder)
