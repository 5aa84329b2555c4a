"""Taking over, and what an owner knows and commits."""

from __future__ import annotations

import asyncio
import dataclasses
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest
from aiokafka.structs import OffsetAndMetadata

from app.delivery.accepted import REPLAYED
from app.delivery.commits.commit import CommitQueue
from app.delivery.commits.handover import Handover, encode_metadata
from app.delivery.ownership import FencedError, Ownership, PartitionContext, Start
from app.delivery.record import REQUESTS, SOURCES
from app.delivery.taking_over import _give_up, take_over
from app.kafka.broker_clock import BrokerClock
from app.settings import Settings
from tables import records
from tables.records import Table
from tests.simulation.memory_store import Disk, MemoryStore


class Held:
    """A store, a producer and a reader in one, whose clients never stop."""

    def __init__(self) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True

    async def stop(self) -> None:
        await asyncio.Event().wait()


async def test_a_take_over_that_is_cancelled_while_it_gives_up_has_closed_its_store() -> None:
    held = cast(Any, Held())
    giving_up = asyncio.create_task(_give_up(held, held, held))
    await asyncio.sleep(0)
    giving_up.cancel()
    with suppress(asyncio.CancelledError):
        await giving_up
    assert held.closed


def place_of(epoch: int) -> Any:
    """A partition whose newest handover is of that epoch; no client of it can be made."""

    class Clients:
        async def committed(self, _partition: int) -> dict[str, OffsetAndMetadata]:
            return {"requests": OffsetAndMetadata(5, encode_metadata(Handover(5, epoch)))}

    return PartitionContext(3, Settings(_env_file=None), cast(Any, Clients()), cast(Any, None), CommitQueue())


async def test_worker_that_was_replaced_fences_nobody() -> None:
    with pytest.raises(FencedError, match="taken over by another worker"):
        await take_over(place_of(epoch=9), {4, 5})


class Tokens:
    epoch = 40
    position = 50


def ownership_of(former: Handover, context: Any = None) -> Ownership:
    start = Start(former, dict.fromkeys(SOURCES, 10), {REQUESTS: former.ahead})
    store = MemoryStore.open_on(Disk(), Path("p"), owner="test")
    return Ownership(context or place_of(40), cast(Any, None), cast(Any, Tokens()), store, start, BrokerClock())


async def test_checkpoint_carries_what_is_finished_ahead_and_where_the_oldest_answer_began() -> None:
    ownership = ownership_of(Handover(10, epoch=30, tokens_offset=25, floor=20))
    assert ownership._handover([], 40) == Handover(10, 40, tokens_offset=25, floor=20), (
        "the recovered answers are not known yet"
    )
    ownership._resume_until, ownership._first_epoch = 10, 40
    for offset in (10, 11, 12):
        ownership.offsets["requests"].add(offset, 45 + offset)
    assert ownership._handover([11], 40) == Handover(10, 40, tokens_offset=55, floor=40, ahead=(11,))
    assert ownership._handover([10, 11, 12], 40) == Handover(13, 40, tokens_offset=50, floor=40)


async def test_floor_stays_the_former_one_while_answers_of_before_the_own_fence_are_open() -> None:
    ownership = ownership_of(Handover(10, epoch=30, tokens_offset=25, floor=20))
    ownership._resume_until, ownership._first_epoch = 10, 40
    ownership.offsets["requests"].add(10, 25)
    assert ownership._handover([], 40) == Handover(10, 40, tokens_offset=25, floor=20)


async def test_parked_request_that_another_owner_has_begun_goes_on_from_the_log() -> None:
    """It was parked before this worker was suspended, and is the last one that is read again."""
    ownership = ownership_of(Handover(10, epoch=30, tokens_offset=25, floor=20))
    ownership._resume_until = ownership.inherited_until = 11
    ownership._first_epoch = 40
    ownership.offsets["requests"].skip_to(11)
    ownership.recovered = {("nina", "r1"): REPLAYED}
    ownership.unpark(10)
    assert ownership.recovered
    assert ownership.offsets["requests"].began(10) == 25


async def test_log_that_was_made_anew_is_read_from_its_beginning_and_fenced_again_once_it_has_grown() -> None:
    former = Handover(10, epoch=900, tokens_offset=880, floor=850)
    ownership = ownership_of(former)
    handover = ownership._handover([], 40)
    assert (handover.tokens_offset, handover.floor, handover.lost_epoch) == (40, -1, 900)
    assert not ownership.needs_new_fence
    ownership.token_log.position = 901
    assert ownership.needs_new_fence
    ownership.token_log.epoch = 901
    assert not ownership.needs_new_fence
    assert ownership._handover([], 901).lost_epoch == -1


async def test_each_commit_states_the_models_that_are_served_then() -> None:
    names = ("demo",)
    context = dataclasses.replace(place_of(40), models=lambda: names)
    ownership = ownership_of(Handover(10, epoch=30), context)
    assert ownership.states_former_models, "nothing was committed yet"
    assert ownership._handover([], 40).models == ("demo",)
    assert not ownership.states_former_models
    names = ("demo", "small")
    assert ownership.states_former_models
    assert ownership._handover([], 40).models == names


async def test_ownership_is_confirmed_by_a_fresh_commit_or_by_the_broker() -> None:
    ownership = ownership_of(Handover(10, epoch=30), place_of(epoch=41))
    assert not await ownership.is_confirmed(), "another epoch was committed since"
    ownership.token_log.epoch = 41
    assert await ownership.is_confirmed()
    ownership.token_log.epoch = 40
    assert await ownership.is_confirmed(), "it was confirmed a moment ago"
    ownership.committer.confirmed_at -= 2 * ownership.context.settings.session_timeout_s
    assert not await ownership.is_confirmed()


async def test_request_is_known_as_long_as_its_own_time_is_within_the_deduplication() -> None:
    ownership = ownership_of(Handover(10, epoch=30))
    ownership.context = PartitionContext(
        3, Settings(_env_file=None, dedup_s=10), cast(Any, None), cast(Any, None), CommitQueue()
    )
    row = records.RowChange(Table.ENDED, records.key("ann", "r1"), records.encode(records.Ended(100_000)))
    ownership.store.apply([row], {}, now_ms=0)
    known = [ownership.known(("ann", "r1"), at) for at in (1, 100_000, 110_000, 110_001)]
    assert known == [True, True, True, False], "a record that is replayed is as old as it was"


async def test_log_that_lost_its_tail_is_read_no_further_than_it_goes() -> None:
    former = Handover(10, epoch=30, tokens_offset=60, floor=30)
    ownership = ownership_of(former)
    handover = ownership._handover([], 40)
    assert (handover.tokens_offset, handover.floor, handover.lost_epoch) == (40, 30, -1)
