"""What Presidio and spaCy find under the rules of a policy, without a network."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from app.guard.analyzer import Analyzer, AnalyzerError
from app.guard.guard import Guard
from app.guard.packaged_pipeline import PACKAGE
from app.policy.file import NO_POLICY, Policy, PolicyError
from app.policy.guard_rules import GuardRules
from models.private.value import PrivateValue

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
    found = await analyzer.find([TEXT, TEXT])
    assert {one.kind for one in found} == KINDS
    assert len({one.value for one in found}) == len(found) == len(KINDS)


async def test_a_value_deep_in_a_long_text_is_found(analyzer: Analyzer) -> None:
    text = "Nothing to see here. " * 300 + "Write to bob@example.org. " + "Nor here. " * 300
    assert PrivateValue("EMAIL_ADDRESS", "bob@example.org") in await analyzer.find([text])


async def test_numbers_with_a_wrong_checksum_are_no_cards(analyzer: Analyzer) -> None:
    found = await analyzer.find(["order 4111 1111 1111 1112, reference DE88 3704 0044 0532 0130 00"])
    assert not {one.kind for one in found} & {"CREDIT_CARD", "IBAN_CODE"}


async def test_patterns_alone_need_no_language_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.guard.analyzer.find_pipeline", lambda: None)
    patterns = Analyzer(GuardRules(pii="mask", pii_entities=("EMAIL_ADDRESS",)))
    assert await patterns.find([TEXT]) == (PrivateValue("EMAIL_ADDRESS", "anna.schmidt@example.com"),)
    with pytest.raises(PolicyError, match=r"guard: the entities LOCATION, PERSON need a pii_model"):
        Guard(Policy(guard=GuardRules(pii="mask")))


def test_a_pipeline_that_does_not_exist_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(AnalyzerError, match=r"^pii_model: .*nowhere"):
        Analyzer(GuardRules(pii="mask", pii_model=str(tmp_path / "nowhere")))


def test_a_changed_file_of_the_packaged_pipeline_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.guard.packaged_pipeline.SHA256", {"ner/model": "0" * 64})
    with pytest.raises(AnalyzerError, match=rf"model of {PACKAGE} .* is not the known file"):
        Analyzer(GuardRules(pii="mask"))


async def test_an_analyzer_that_is_too_slow_gives_no_verdict(
    analyzer: Analyzer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(_text: str) -> tuple[PrivateValue, ...]:
        await asyncio.sleep(3600)
        return ()

    monkeypatch.setattr(analyzer, "_find", hang)
    monkeypatch.setattr(analyzer, "_rules", GuardRules(pii="mask", timeout_s=0.01))
    with pytest.raises(AnalyzerError, match="took longer"):
        await analyzer.find([TEXT])


async def test_a_guard_without_masks_loads_nothing() -> None:
    def load(_rules: GuardRules) -> Analyzer:
        raise AssertionError

    assert await Guard(NO_POLICY, load).find([TEXT], "a test") == ()


def _no_network(*_args: object) -> None:
    raise AssertionError
