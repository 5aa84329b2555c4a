from __future__ import annotations

from typing import Any

import pytest

from app.commands.chat import show
from app.reader import Answer, Update
from app.wire.event import ATTEMPT, PLAN, RESUMED, WAITING, EventType, Notice, TokenEvent


@pytest.mark.parametrize(
    ("code", "details", "is_shown"),
    [(RESUMED, None, True), (ATTEMPT, {"attempt": 2}, True), (ATTEMPT, {"attempt": 1}, False), (PLAN, {}, False)],
)
def test_answer_view_shows_notices_for_people_only(
    code: str, details: dict[str, Any] | None, is_shown: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    event = TokenEvent(type=EventType.NOTICE, index=0, notice=Notice(code, "news", details))
    show(Update(Answer("ann", "r", "default"), event))
    assert ("[news]" in capsys.readouterr().err) == is_shown


def test_whoever_waits_reads_for_whom_and_how_to_leave(capsys: pytest.CaptureFixture[str]) -> None:
    details = {"kind": "approval", "wait_id": "c", "name": "refund", "by": "desk", "until": 1_796_000_000_000}
    notice = Notice(WAITING, "the answer waits for refund", details)
    show(Update(Answer("ann", "r", "default"), TokenEvent(type=EventType.NOTICE, index=0, notice=notice)))
    said = capsys.readouterr().err
    assert said.startswith("[the answer waits for refund, which desk has to approve, until 2026-11-")
    assert said.endswith(" at the latest; Ctrl-C cancels it]\n")
