"""When a partition counts as held back, by the state that aiokafka itself keeps."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.consumer.subscription_state import SubscriptionState, TopicPartitionState
from aiokafka.structs import TopicPartition

from app.faust.open_transactions import PATIENCE_S, OpenTransactions

AT = TopicPartition("requests", 3)


class Fetched:
    """A consumer's view of one partition, and the clock."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._caplog = caplog
        self._consumer: Any = SimpleNamespace(_subscription=SubscriptionState())
        self._watch = OpenTransactions()
        self._now = 1000.0

    def assigned(self) -> TopicPartitionState:
        self._consumer._subscription.assign_from_user([AT])
        state = self._consumer._subscription.subscription.assignment.state_value(AT)
        state.seek(17)
        state.lso, state.highwater = 17, 20
        return state

    def wait(self, seconds: float = PATIENCE_S + 2) -> int:
        """Returns how many warnings there have been by then."""
        for _ in range(int(seconds * 4)):
            self._now += 0.25
            self._watch.fetched(self._consumer, self._now)
        return len(self._caplog.records)


@pytest.fixture
async def fetched(caplog: pytest.LogCaptureFixture) -> Fetched:
    return Fetched(caplog)


async def test_one_warning_for_each_offset(fetched: Fetched, caplog: pytest.LogCaptureFixture) -> None:
    assert fetched.wait() == 0, "nothing is assigned yet"
    state = fetched.assigned()
    assert fetched.wait(PATIENCE_S - 2) == 0
    assert fetched.wait() == fetched.wait() == 1
    assert "requests[3] offset 17: an open transaction" in caplog.text
    state.seek(19)
    state.lso = 19
    assert fetched.wait(PATIENCE_S - 2) == 1
    assert fetched.wait() == 2


@pytest.mark.parametrize(
    "change",
    [
        lambda state: setattr(state, "highwater", 17),
        lambda state: setattr(state, "lso", None),
        lambda state: setattr(state, "lso", -1),
        lambda state: state.seek(16),
        lambda state: state.pause(),
        lambda state: state.await_reset(-1),
    ],
    ids=["at the end", "not fetched", "unknown", "not delivered", "paused", "without position"],
)
async def test_no_warning_about_what_waits_for_something_else(fetched: Fetched, change: Any) -> None:
    change(fetched.assigned())
    assert fetched.wait() == 0


async def test_transactions_that_follow_one_another_are_no_news(fetched: Fetched) -> None:
    state = fetched.assigned()
    for offset in range(17, 40):
        state.seek(offset)
        state.lso, state.highwater = offset, offset + 3
        assert fetched.wait(1) == 0
