"""Records pass in order and none is left out, whatever Faust drops, fetches again and hands out late."""

from __future__ import annotations

import random
from collections import deque

import pytest

from app.faust.arrivals import Arrivals, LostRecordError

AT, OTHER = ("requests", 0), ("requests", 1)
WAIT_S = 10.0


@pytest.fixture
def arrivals() -> Arrivals:
    arrivals = Arrivals(WAIT_S)
    arrivals.assign()
    arrivals.seek(AT)
    return arrivals


def passing(arrivals: Arrivals, *offsets: int, now: float = 0.0) -> list[int]:
    return [offset for offset in offsets if arrivals.passes(AT, offset, now)]


def test_records_pass_as_they_were_fetched_whatever_holes_their_offsets_have(arrivals: Arrivals) -> None:
    arrivals.fetched(AT, [3, 4])
    arrivals.fetched(AT, [17])
    assert passing(arrivals, 3, 4, 17) == [3, 4, 17]
    assert len(arrivals) == 0


def test_what_stands_behind_a_dropped_record_comes_again(arrivals: Arrivals) -> None:
    arrivals.fetched(AT, [7, 8, 9, 10])
    assert passing(arrivals, 7, 9, 10) == [7]
    arrivals.seek(AT)
    arrivals.fetched(AT, [7, 8, 9, 10, 11])
    assert passing(arrivals, 10) == [], "late"
    assert passing(arrivals, 7, 8, 9, 10, 11) == [7, 8, 9, 10, 11]


def test_one_partition_does_not_wait_for_another(arrivals: Arrivals) -> None:
    arrivals.seek(OTHER)
    arrivals.fetched(OTHER, [3, 4])
    arrivals.fetched(AT, [5])
    assert not arrivals.passes(OTHER, 4, 0.0)
    assert passing(arrivals, 5) == [5]
    assert arrivals.passes(OTHER, 3, 0.0)


def test_a_partition_that_was_away_begins_at_its_new_offset(arrivals: Arrivals) -> None:
    arrivals.fetched(AT, [5, 6, 7])
    arrivals.revoke()
    assert passing(arrivals, 5, 6) == []
    arrivals.assign()
    arrivals.fetched(AT, [7])
    assert passing(arrivals, 7) == [], "the consumer has not gone to an offset yet"
    arrivals.seek(AT)
    arrivals.fetched(AT, [90, 91])
    assert passing(arrivals, 6, 7, 91) == []
    assert passing(arrivals, 90, 91) == [90, 91]


def test_nothing_passes_before_delivery_knows_the_assignment(arrivals: Arrivals) -> None:
    arrivals.revoke()
    arrivals.seek(AT)
    arrivals.fetched(AT, [5, 6])
    assert passing(arrivals, 5) == []
    arrivals.assign()
    assert passing(arrivals, 6) == [], "5 was not delivered"
    assert passing(arrivals, 5, 6) == [5, 6]


def test_a_record_that_does_not_come_ends_the_worker(arrivals: Arrivals) -> None:
    arrivals.fetched(AT, range(5, 40))
    assert passing(arrivals, 6, now=100.0) == []
    assert passing(arrivals, 7, now=100.0 + WAIT_S) == []
    with pytest.raises(LostRecordError, match=r"requests\[0\]: offset 5 was fetched and has not come; 8 has"):
        passing(arrivals, 8, now=100.1 + WAIT_S)


def test_only_records_that_keep_coming_show_that_one_is_lost(arrivals: Arrivals) -> None:
    arrivals.fetched(AT, range(5, 40))
    for number in range(10):
        assert passing(arrivals, 6, now=(WAIT_S + 1) * number) == []


@pytest.mark.parametrize("ends", ["it comes", "seek", "revoke"])
def test_the_wait_begins_anew(arrivals: Arrivals, ends: str) -> None:
    arrivals.fetched(AT, [5, 6])
    assert passing(arrivals, 6, now=0.0) == []
    match ends:
        case "it comes":
            assert passing(arrivals, 5, 6, now=9.0) == [5, 6]
        case "seek":
            arrivals.seek(AT)
        case "revoke":
            arrivals.revoke()
            arrivals.assign()
            arrivals.seek(AT)
    arrivals.fetched(AT, [7, 8])
    assert passing(arrivals, 8, now=9.5) == []
    assert passing(arrivals, 8, now=WAIT_S + 1) == []


class Partition:
    """Its log, a consumer that Faust drives, and what delivery has got. `committed` is how far others got meanwhile."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.log = sorted(chance.sample(range(200), 60))
        self.arrivals = Arrivals(WAIT_S)
        self.queue: deque[int] = deque()
        self.position = 0
        self.committed = 0
        self.delivered: list[int] = []
        self.wanted = 0
        """The least offset that delivery may get next."""
        self.is_open = False

    def seek(self) -> None:
        self.position = self.committed
        self.arrivals.seek(AT)
        self.wanted = self.committed
        self.is_open = True

    def fetch(self) -> None:
        records = [offset for offset in self.log if offset >= self.position][: self.chance.randint(1, 9)]
        if records:
            self.position = records[-1] + 1
            self.arrivals.fetched(AT, records)
            self.queue.extend(records)

    def drop(self) -> None:
        """Faust drops what it has in hand; this is always followed by a seek."""
        for _ in range(self.chance.randint(0, len(self.queue))):
            del self.queue[self.chance.randrange(len(self.queue))]
        self.deliver()
        if self.chance.random() < 0.5:
            self.arrivals.revoke()
            self.is_open = False
            if self.chance.random() < 0.3:
                self.committed = max(self.committed, self.chance.choice(self.log))
            self.deliver()
            self.arrivals.assign()
        self.seek()

    def deliver(self) -> None:
        for _ in range(self.chance.randint(0, len(self.queue))):
            offset = self.queue.popleft()
            if self.arrivals.passes(AT, offset, 0.0):
                assert self.is_open
                following = next(one for one in self.log if one >= self.wanted)
                assert offset == following, "the next one of the log, from the committed offset on"
                self.delivered.append(offset)
                self.wanted = offset + 1
            elif self.chance.random() < 0.1:
                self.queue.appendleft(offset)  # twice
                break

    def run(self) -> None:
        self.arrivals.assign()
        self.seek()
        for _ in range(60):
            self.chance.choices((self.fetch, self.deliver, self.drop, self.seek), (5, 5, 1, 1))[0]()
        while self.queue or self.position <= self.log[-1]:
            self.fetch()
            self.deliver()


@pytest.mark.parametrize("seed", range(300))
def test_whatever_happens_records_pass_in_order_and_all_to_the_last_one(seed: int) -> None:
    partition = Partition(random.Random(seed))
    partition.run()
    assert partition.delivered[-1:] == partition.log[-1:] or partition.committed > partition.log[-1]
    assert len(partition.arrivals) == 0
