"""What one plain request enters, from its record to its first token: a short path, and no feature that is off.

The policy is empty, the engine is the paced one, Kafka is simulated.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from app.delivery.partitions import Partitions
from app.delivery.record import Record
from app.delivery.resume.tokens import TokenLog
from app.policy.file import NO_POLICY, Policy
from app.wire.event import EventType, TokenEvent
from tests.simulation import process
from tests.simulation.scenario import Load, Simulation

ROOT = f"{Path(__file__).parents[2]}/"
MOST_FILES = 33
MOST_RETURNS = 155


class Alone(Simulation):
    def _policy(self) -> Policy:
        return NO_POLICY


@pytest.fixture
def entered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The file of each call of the product, in order."""
    calls: list[str] = []

    def called(frame: FrameType, event: str, _argument: Any) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(ROOT) and not name.startswith((f"{ROOT}tests/", f"{ROOT}.venv/")):
            calls.append(name.removeprefix(ROOT))

    accept, send = Partitions.accept, TokenLog.send

    def accepting(self: Partitions, record: Record, *rest: Any) -> Any:
        if record.topic == "requests" and not calls:
            sys.setprofile(called)
        return accept(self, record, *rest)

    async def sending(self: TokenLog, event: TokenEvent, *rest: Any) -> Any:
        if event.type is EventType.TOKEN:
            sys.setprofile(None)
        return await send(self, event, *rest)

    monkeypatch.setattr(Partitions, "accept", accepting)
    monkeypatch.setattr(TokenLog, "send", sending)
    monkeypatch.setattr(Alone, "_is_deadly", lambda *_: False)  # what the simulation notes of a job is no step of it
    monkeypatch.setattr(process, "_candidate_of", lambda _: 0)
    with _no_profile():
        one = Alone(5, load=Load(requests=0))
        one.keep_running(40)
        record = {"user_id": "u", "request_id": "r", "conversation_id": "c", "prompt": "a question", "max_tokens": 8}
        one.world.after(1.0, lambda: one._append("requests", "u", json.dumps(record).encode()))
        one.run()
    return calls


@contextmanager
def _no_profile() -> Iterator[None]:
    former = sys.getprofile()
    try:
        yield
    finally:
        sys.setprofile(former)


def test_plain_request_enters_few_files_and_no_feature(entered: list[str]) -> None:
    moves = [name for at, name in enumerate(entered) if at == 0 or entered[at - 1] != name]
    returns = len(moves) - len({*moves})
    assert len(entered) > 200, "the path was not traced"
    assert [name for name in {*moves} if name.startswith(("app/features/", "app/policy/", "app/search/"))] == []
    assert len({*moves}) <= MOST_FILES, sorted({*moves})
    assert returns <= MOST_RETURNS, returns
