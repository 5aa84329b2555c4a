"""That the simulation can fail: each promise of delivery, broken on purpose, is found within a few seeds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from app.delivery.answer_log import AnswerLog
from app.delivery.offsets import Offsets
from app.delivery.ownership import Ownership
from app.delivery.partition import Partition
from app.delivery.tokens import TokenLog
from app.wire.event import TokenEvent
from tables.records import Change, Table, encode
from tables.usage import Windows
from tests.simulation.broker import Broker, Writer
from tests.simulation.faults import FAULTS, kill, storm, trouble

SEEDS = 2000


async def _nothing(*_: Any, **__: Any) -> None:
    return None


def _fences_nobody(broker: Broker, name: str, _epoch: int) -> Writer:
    return broker.writers[name]


async def _end_without_waiting(answer: AnswerLog, event: TokenEvent) -> TokenEvent:
    await answer._send(event)
    return event


async def _recalls_nothing(ownership: Ownership, *_: Any) -> None:
    ownership._resume_until = 0


async def _writes_no_fence(ownership: Ownership, mine: set[int]) -> None:
    ownership.tokens.open(max(0, ownership._inherited))
    mine.add(ownership.tokens.epoch)


def _head_without_open(offsets: Offsets, _finishing: Any = ()) -> int:
    return offsets.next


def _known_while_it_runs(ownership: Ownership, key: tuple[str, str]) -> bool:
    return key in ownership.claims


def _without_progress(windows: Windows) -> tuple[Change, ...]:
    rows = dict(windows._changed)
    windows._changed.clear()
    return tuple(Change(Table.USAGE, encode(key), tally and encode(tally)) for key, tally in rows.items())


MUTANTS: dict[str, tuple[type, str, Callable[..., Any]]] = {
    "the broker fences nobody": (Broker, "_writer", _fences_nobody),
    "an end does not wait for the deliveries before it": (AnswerLog, "_end", _end_without_waiting),
    "nothing is recalled of what was said": (Ownership, "recall", _recalls_nothing),
    "no fence is written": (Ownership, "write_fence", _writes_no_fence),
    "a fence overtakes what is on its way": (TokenLog, "hold", _nothing),
    "offsets are committed past open requests": (Offsets, "head", _head_without_open),
    "ended requests are forgotten": (Ownership, "known", _known_while_it_runs),
    "records in memory are not taken again": (Partition, "_take_again", lambda _partition: None),
    "usage is counted again from the beginning": (Windows, "drain", _without_progress),
    "a take-over goes on during a rebalance": (Partition, "unsettle", _nothing),
}


BY = {"an end does not wait for the deliveries before it": (trouble, kill)}
"""The faults that show it soonest; all of them where nothing stands here."""


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_promise_is_found(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, broken = MUTANTS[mutant]
    monkeypatch.setattr(owner, name, broken)
    for seed in range(SEEDS):
        try:
            if not storm(seed, faults=BY.get(mutant, FAULTS)).run().clean:
                return
        except asyncio.CancelledError:
            raise
        except Exception:  # noqa: BLE001 - whatever the mutant breaks, it was found
            return
    pytest.fail(f"{SEEDS} seeds did not notice that {mutant}")
