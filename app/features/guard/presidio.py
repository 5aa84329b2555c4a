"""Presidio's engine with the recognizers of the policy. No part of it uses the network."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import regex
import spacy
from presidio_analyzer import AnalyzerEngine, EntityRecognizer, PatternRecognizer, RecognizerRegistry
from presidio_analyzer.nlp_engine import NerModelConfiguration, SpacyNlpEngine
from presidio_analyzer.predefined_recognizers import (
    CreditCardRecognizer,
    EmailRecognizer,
    IbanRecognizer,
    IpRecognizer,
    PhoneRecognizer,
    SpacyRecognizer,
)
from spacy.language import Language
from spacy.tokens import Doc
from tldextract import TLDExtract

from app.policy.guard_rules import NAMED, GuardRules

_LONG_WORD = re.compile(r"\S{64}")
_LONGEST_S = 5.0
"""Of one pattern in one piece of a text."""
_UNUSED = ["tagger", "parser", "lemmatizer", "attribute_ruler", "senter"]
_DOMAINS = TLDExtract(suffix_list_urls=(), cache_dir=None)
"""With the public suffix list of the package; the default fetches one from the network."""


class SlowPatternError(Exception):
    """A pattern has taken too long for a text, so there is no verdict about it."""


class _Unblocking:
    """A pattern that lets other threads run while it searches. Presidio's own are quadratic in odd texts, and it treats
    a search that takes too long as one that finds nothing.
    """

    def __init__(self, pattern: regex.Pattern[str]) -> None:
        self._pattern = pattern

    def finditer(self, text: str, timeout: float) -> list[regex.Match[str]]:  # noqa: ARG002 - Presidio's is a minute
        try:
            return list(self._pattern.finditer(text, concurrent=True, timeout=_LONGEST_S))
        except TimeoutError:
            raise SlowPatternError from None


class _Tokenizer:
    """spaCy's tokenizer on words of bounded length: its time grows with their square, and no other thread runs then."""

    def __init__(self, tokenizer: Callable[[str], Doc]) -> None:
        self._tokenizer = tokenizer

    def __call__(self, text: str) -> Doc:
        ends = [match.end() for match in _LONG_WORD.finditer(text)]
        if not ends:
            return self._tokenizer(text)
        parts = [text[begin:end] for begin, end in pairwise((0, *ends, len(text))) if begin < end]
        return Doc.from_docs([self._tokenizer(part) for part in parts], ensure_whitespace=False)


class _Email(EmailRecognizer):
    def validate_result(self, pattern_text: str) -> bool:
        return bool(_DOMAINS(pattern_text).top_domain_under_public_suffix)


class _Pipeline(SpacyNlpEngine):
    def __init__(self, language: str, pipeline: Language) -> None:
        super().__init__(ner_model_configuration=NerModelConfiguration(labels_to_ignore=[]))
        self.nlp: dict[str, Language] = {language: pipeline}  # type: ignore[assignment]  # Presidio declares None


def engine_of(rules: GuardRules, pipeline: str | None) -> AnalyzerEngine:
    """Raises `OSError` or `ValueError` if spaCy cannot load the pipeline."""
    language = rules.pii_language
    nlp = spacy.blank(language) if pipeline is None else spacy.load(pipeline, exclude=_UNUSED)
    nlp.tokenizer = _Tokenizer(nlp.tokenizer)
    recognizers: list[EntityRecognizer] = [
        _Email(supported_language=language),
        CreditCardRecognizer(supported_language=language),
        IbanRecognizer(supported_language=language),
        IpRecognizer(supported_language=language),
        PhoneRecognizer(supported_language=language, supported_regions=rules.phone_regions),
    ]
    if rules.needs_names:
        entities = sorted(NAMED & {*rules.pii_entities})
        recognizers.append(SpacyRecognizer(supported_language=language, supported_entities=entities))
    for recognizer in recognizers:
        if isinstance(recognizer, PatternRecognizer):
            flags = recognizer.global_regex_flags or 0
            patterns: list[Any] = recognizer.patterns  # type: ignore[has-type]
            for pattern in patterns:
                pattern.compiled_with_flags = flags
                pattern.compiled_regex = _Unblocking(regex.compile(pattern.regex, flags))
    registry = RecognizerRegistry(recognizers=recognizers, supported_languages=[language])
    return AnalyzerEngine(registry=registry, nlp_engine=_Pipeline(language, nlp), supported_languages=[language])
