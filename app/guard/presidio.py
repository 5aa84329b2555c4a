"""Presidio's engine with the recognizers of the policy. No part of it uses the network."""

from __future__ import annotations

import spacy
from presidio_analyzer import AnalyzerEngine, EntityRecognizer, RecognizerRegistry
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
from tldextract import TLDExtract

from app.policy.guard_rules import NAMED, GuardRules

_UNUSED = ["tagger", "parser", "lemmatizer", "attribute_ruler", "senter"]
_DOMAINS = TLDExtract(suffix_list_urls=(), cache_dir=None)
"""With the public suffix list of the package; the default fetches one from the network."""


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
    registry = RecognizerRegistry(recognizers=recognizers, supported_languages=[language])
    return AnalyzerEngine(registry=registry, nlp_engine=_Pipeline(language, nlp), supported_languages=[language])
