"""What Presidio and spaCy find under the rules of a policy, without a network."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest
import spacy
from hypothesis import given
from hypothesis import strategies as st
from spacy.tokens import Doc

from app.features.guard.analyzer import _OVERLAP, _PIECE, Analyzer, AnalyzerError, _pieces
from app.features.guard.fair_order import Asker, Patience
from app.features.guard.guard import Guard
from app.features.guard.packaged_pipeline import PACKAGE
from app.features.guard.presidio import _Tokenizer
from app.policy.file import NO_POLICY, Policy, PolicyError
from app.policy.guard_rules import GuardRules
from app.private.value import PrivateValue

ASKER = Asker("a user")
TEXT = (
    "My name is Anna Schmidt, mail anna.schmidt@example.com, card 4111 1111 1111 1111, "
    "IBAN DE89 3704 0044 0532 0130 00, address 192.168.1.77, call +49 170 1234567."
)
KINDS = {"PERSON", "EMAIL_ADDRESS", "CREDIT_CARD", "IBAN_CODE", "IP_ADDRESS", "PHONE_NUMBER"}


@pytest.fixture(scope="module")
def analyzer() -> Analyzer:
    return Analyzer(GuardRules(pii="mask"))


async def test_each_kind_of_value_is_found_once(analyzer: Analyzer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket.socket, "connect", _no_network)
    found = await analyzer.find([TEXT, TEXT], ASKER)
    assert {one.kind for one in found} == KINDS
    assert len({one.value for one in found}) == len(found) == len(KINDS)


async def test_a_value_deep_in_a_long_text_is_found(analyzer: Analyzer) -> None:
    text = "Nothing to see here. " * 300 + "Write to bob@example.org. " + "Nor here. " * 300
    assert PrivateValue("EMAIL_ADDRESS", "bob@example.org") in await analyzer.find([text], ASKER)


async def test_numbers_with_a_wrong_checksum_are_no_cards(analyzer: Analyzer) -> None:
    found = await analyzer.find(["order 4111 1111 1111 1112, reference DE88 3704 0044 0532 0130 00"], ASKER)
    assert not {one.kind for one in found} & {"CREDIT_CARD", "IBAN_CODE"}


async def test_patterns_alone_need_no_language_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.features.guard.analyzer.find_pipeline", lambda: None)
    patterns = Analyzer(GuardRules(pii="mask", pii_entities=("EMAIL_ADDRESS",)))
    assert await patterns.find([TEXT], ASKER) == (PrivateValue("EMAIL_ADDRESS", "anna.schmidt@example.com"),)
    with pytest.raises(PolicyError, match=r"guard: the entities LOCATION, PERSON need a pii_model"):
        Guard(Policy(guard=GuardRules(pii="mask")))


def test_a_pipeline_that_does_not_exist_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(AnalyzerError, match=r"^pii_model: .*nowhere"):
        Analyzer(GuardRules(pii="mask", pii_model=str(tmp_path / "nowhere")))


def test_a_changed_file_of_the_packaged_pipeline_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.features.guard.packaged_pipeline.SHA256", {"ner/model": "0" * 64})
    with pytest.raises(AnalyzerError, match=rf"model of {PACKAGE} .* is not the known file"):
        Analyzer(GuardRules(pii="mask"))


async def test_an_analyzer_that_is_too_slow_gives_no_verdict(
    analyzer: Analyzer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(_pieces: list[str]) -> list[tuple[PrivateValue, ...]]:
        await asyncio.sleep(3600)
        return []

    monkeypatch.setattr(analyzer, "_in_thread", hang)
    monkeypatch.setattr(analyzer, "_rules", GuardRules(pii="mask", timeout_s=0.01))
    with pytest.raises(AnalyzerError, match="took longer"):
        await analyzer.find(["a new text"], ASKER)


async def test_a_guard_without_masks_loads_nothing() -> None:
    def load(_rules: GuardRules) -> Analyzer:
        raise AssertionError

    assert await Guard(NO_POLICY, load).find([TEXT], ASKER) == ()


def _no_network(*_args: object) -> None:
    raise AssertionError


async def test_a_value_across_the_border_of_two_pieces_is_found(analyzer: Analyzer) -> None:
    for pad in range(960, 1001, 4):
        text = "x " * pad + "card 4111 1111 1111 1111 ok " + "y " * 50
        assert PrivateValue("CREDIT_CARD", "4111 1111 1111 1111") in await analyzer.find([text], ASKER)


@given(st.lists(st.sampled_from(["word", "a sentence.", " ", "x" * 300, "\n"]), max_size=400).map(" ".join))
def test_pieces_are_the_text_and_overlap(text: str) -> None:
    whole, at = "", 0
    for piece in _pieces(text):
        begin = text.index(piece, max(0, at - 2 * _OVERLAP)) if piece else at
        assert begin <= at
        assert len(piece) <= _PIECE + _OVERLAP
        whole += piece[at - begin :]
        at = begin + len(piece)
    assert whole == text


async def test_a_verdict_is_remembered_for_its_user_alone_until_an_erasure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.features.guard.analyzer.find_pipeline", lambda: None)
    patterns = Analyzer(GuardRules(pii="mask", pii_entities=("EMAIL_ADDRESS",)))
    read: list[str] = []
    analyze = patterns._engine.analyze

    def note(text: str, *arguments: object, **options: object) -> object:
        read.append(text)
        return analyze(text, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(patterns._engine, "analyze", note)
    for asker in (ASKER, ASKER, Asker("another user"), ASKER):
        assert await patterns.find(["bob@example.org"], asker)
    assert len(read) == 2
    patterns.forget("a user")
    await patterns.find(["bob@example.org"], ASKER)
    assert len(read) == 3


async def test_a_sentence_does_not_wait_for_anothers_long_texts(analyzer: Analyzer) -> None:
    """Five long texts of one user would have taken all of another's time limit."""
    words = " ".join(f"word{number}" for number in range(1500))
    # Begun: a slow machine would refuse some that are new.
    mallory = Asker("mallory", patience=Patience.BEGUN)
    long = [asyncio.ensure_future(analyzer.find([f"{number} {words}"], mallory)) for number in range(5)]
    await asyncio.sleep(0)
    assert await analyzer.find(["My mail is nina@example.com."], Asker("nina"))
    assert sum(one.done() for one in long) <= 1
    long[-1].cancel()
    await asyncio.gather(*long, return_exceptions=True)


async def test_half_a_character_is_no_text_that_the_analyzer_fails_on(analyzer: Analyzer) -> None:
    assert await analyzer.find(["\ud83d bob@example.org"], ASKER)


PLAIN = spacy.blank("en").tokenizer


@given(
    st.lists(st.sampled_from(["::", "#!$", " ", "\n", "x" * 70, "Anna Schmidt", '"', "é"]), max_size=60).map("".join)
)
def test_the_tokenizer_gets_words_of_bounded_length_and_loses_nothing(text: str) -> None:
    parts: list[str] = []

    def note(part: str) -> Doc:
        parts.append(part)
        return PLAIN(part)

    assert _Tokenizer(note)(text).text == text
    assert max(map(len, "\n".join(parts).split()), default=0) <= 128


async def test_a_pattern_that_takes_too_long_is_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.features.guard.analyzer.find_pipeline", lambda: None)
    patterns = Analyzer(GuardRules(pii="mask", pii_entities=("IP_ADDRESS",)))
    assert await patterns.find(["at 10.0.0.7"], ASKER) == (PrivateValue("IP_ADDRESS", "10.0.0.7"),)
    monkeypatch.setattr("app.features.guard.presidio._LONGEST_S", 1e-6)
    with pytest.raises(AnalyzerError, match=r"^the search for private values failed: SlowPatternError$"):
        await patterns.find(["::" * 1000], ASKER)
