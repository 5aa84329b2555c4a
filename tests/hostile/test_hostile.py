"""The short version of `python -m tests.hostile`: with everything on, and a kind of each sort."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.local.kafka import KafkaCluster
from tests.hostile import run
from tests.hostile.http_kinds import HTTP_KINDS
from tests.hostile.record_kinds import RECORD_KINDS
from tests.hostile.run import MOST_FENCES, hostile_run

NAMES = {
    "an unknown parameter of 1e999",
    "multipleOf of 400 digits in a tool",
    "arguments 1,200 deep",
    "a schema that refers to itself, in a tool",
    "a pattern that backtracks",
    "Kelvin signs",
    "lone surrogates",
    "1,000 messages with addresses",
    "all log probabilities, twice",
    "all log probabilities, repeated",
    "the best of 8",
    "a batch in snappy",
    "a batch in lz4",
    "a batch in zstd",
    "a gzip bomb on controls",
    "a header name that is no UTF-8",
    "such a header on tool-results",
    "a time before the year 1",
    "a batch in a codec that it is not in",
    "a transaction that is given up",
    "n of 1e999",
    "4,400 digits in an unknown field",
    "one id, four requests",
    "a control 200,000 deep",
    "an audit of 22 digits",
    "a turn that is none",
}


def test_hostile_kinds_have_one_outcome_each_and_hurt_nobody_else(
    kafka: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy machine takes seconds of its own; what a kind blocks waits for the whole of the kind."""
    monkeypatch.setattr(run, "GOOD_WAITS_S", 40.0)
    kinds = [kind for kind in (*HTTP_KINDS, *RECORD_KINDS) if kind.name in NAMES]
    assert len(kinds) == len(NAMES)
    report = hostile_run(kafka, tmp_path, kinds, lambda _result: None, guard=True, session_timeout_s=60.0)
    assert [(result.name, result.faults) for result in report.results if result.faults] == []
    assert report.faults == []
    assert report.ended == 0
    assert {*report.fences} == {0, 1}
    assert max(report.fences.values()) <= MOST_FENCES
    assert len(report.waits) > len(kinds)
