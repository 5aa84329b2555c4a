"""Floods of one line are thinned, and nothing else is."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator

import pytest

from app.process.log_limit import LogLimit, limit_logs


@pytest.fixture
def library() -> Iterator[logging.Logger]:
    logger = logging.getLogger(f"library-{uuid.uuid4().hex}")
    yield logger
    logger.filters.clear()


def test_the_same_line_is_told_once_a_while_and_how_often_it_came(
    library: logging.Logger, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("app.process.log_limit.time.monotonic", lambda: now)
    library.addFilter(LogLimit(5.0))
    for _ in range(900):
        library.error("node %s is away", 1)
    now += 5.0
    library.error("node %s is away", 1)
    assert caplog.messages == ["node 1 is away", "node 1 is away (899 similar lines suppressed)"]


def test_other_lines_are_not_held_back(library: logging.Logger, caplog: pytest.LogCaptureFixture) -> None:
    library.addFilter(LogLimit(5.0))
    for number in range(3):
        library.error("node %s is away", number)
        library.error("node %s is away", number)
    assert caplog.messages == [f"node {number} is away" for number in range(3)]


def test_lines_of_one_cause_are_one(library: logging.Logger, caplog: pytest.LogCaptureFixture) -> None:
    library.addFilter(LogLimit(5.0))
    for number in range(3):
        library.error("record %s is refused", number, extra={"cause": "no prompt"})
    library.error("record %s is refused", 3, extra={"cause": "no user"})
    assert caplog.messages == ["record 0 is refused", "record 3 is refused"]


def test_a_limit_of_a_library_holds_for_all_its_loggers_and_no_others(
    library: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    part, other = logging.getLogger(f"{library.name}.part"), logging.getLogger(f"{library.name}-other")
    limit_logs(library.name)
    for logger in (library, part, other):
        logger.error("from %s", logger.name)
        logger.error("from %s", logger.name)
    assert [record.name for record in caplog.records] == [library.name, part.name, other.name, other.name]
