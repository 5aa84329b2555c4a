"""The consumer group and the flow of records: Faust, as delivery sees it.

A member that is silent for longer than the session loses its partitions without notice. Every change of members
gives every member a new assignment, once each has heard of the change or is given up; each assignment begins to hand
out records at the committed offsets again.
"""

from __future__ import annotations

import random
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING

from aiokafka import TopicPartition

from app.delivery.record import SOURCES, Record
from app.faust.arrivals import Arrivals
from tests.simulation.broker import Broker

if TYPE_CHECKING:
    from tests.simulation.process import Process

_LOOK_S = 0.5


class Group:
    def __init__(self, broker: Broker, partitions: int, session_s: float) -> None:
        self._broker = broker
        self._world = broker.world
        self._partitions = partitions
        self._session_s = session_s
        self._heard: dict[Process, float] = {}
        self._processes: list[Process] = []
        self.generation = 0
        self._waited_for: set[Process] = set()
        self._world.after(_LOOK_S, self._look)

    def join(self, process: Process) -> None:
        """The process asks for it; it is a member from now on, also after a silence."""
        if process not in self._processes:
            self._processes.append(process)
        self._heard[process] = self._world.now
        self.rebalance()

    def leave(self, process: Process) -> None:
        if process in self._processes:
            self._processes.remove(process)
        if self._heard.pop(process, None) is not None:
            self.rebalance()

    def give_up(self, process: Process) -> None:
        """LeaveGroup in its name. A process that lives learns of it by its next heartbeat, and joins again."""
        if self._heard.pop(process, None) is not None:
            self.rebalance()

    def rebalance(self) -> None:
        self.generation += 1
        generation, self._waited_for = self.generation, set(self._heard)
        for member in self._heard:
            self._world.after(2 * self._world.latency(), lambda member=member: member.revoke(generation))

    def ready(self, process: Process, generation: int) -> None:
        """The process has heard of the change, and asks for its part."""
        if generation == self.generation:
            self._waited_for.discard(process)
            self._hand_over()

    def _hand_over(self) -> None:
        if self._waited_for:
            return
        generation = self.generation
        members = list(self._heard)
        if not members:
            return
        self._world.random.shuffle(members)
        given: dict[Process, set[int]] = {member: set() for member in members}
        for number in range(self._partitions):
            given[members[number % len(members)]].add(number)
        for member, numbers in given.items():
            self._world.after(
                4 * self._world.latency(),
                lambda member=member, numbers=numbers: member.assign(generation, frozenset(numbers)),
            )

    def _look(self) -> None:
        """Heartbeats: who is heard of, who is gone, and who finds out that it was given up."""
        self._world.after(_LOOK_S, self._look)
        gone = False
        for process in list(self._processes):
            if process.heard:
                if process in self._heard:
                    self._heard[process] = self._world.now
                else:
                    self.join(process)
            elif self._world.now - self._heard.get(process, self._world.now) > self._session_s:
                del self._heard[process]
                self._waited_for.discard(process)
                gone = True
            if process.dead and process not in self._heard:
                self._processes.remove(process)
        if gone:
            self.rebalance()


class Feed:
    """Hands out one topic's partition, from its committed offset, for as long as the assignment is the newest."""

    def __init__(self, process: Process, arrivals: Arrivals, generation: int, topic: str, at: TopicPartition) -> None:
        self._process = process
        self._arrivals = arrivals
        self._generation = generation
        self._topic = topic
        self._at = at
        self._world = process.broker.world
        self._log = process.broker.log(at)
        self._fetching = False
        self._closed = False
        self._fetched: deque[Record] = deque()
        self.position = 0
        self.paused = False
        self.goes_back = False
        """Whether it does with what it fetches next as Faust may in a rebalance and soon after it."""
        self._log.readers.append(self.poke)
        self.seek_to_committed()

    def seek_to_committed(self) -> None:
        committed = self._process.broker.committed.get(self._at)
        self.position = 0 if committed is None else max(0, committed.offset)
        self._arrivals.seek(self._at)
        self.poke()

    def poke(self) -> None:
        if not self._fetching and not self.paused:
            self._fetching = True
            late = self._process.broker.late.get(self._topic, 0.0)
            self._world.after(self._world.latency() + (late and late * self._world.random.random()), self._fetch)

    def hand_out_late(self, former: Feed) -> None:
        """What was fetched under the former assignment comes under this one, without its first; then all come again."""
        self._fetched.extend(islice(former.drop_fetched(), 1, None))
        if self._fetched:
            self._process.loop.call_soon(self._hand_out)

    def drop_fetched(self) -> list[Record]:
        fetched = list(self._fetched)
        self._fetched.clear()
        return fetched

    def close(self) -> None:
        self._closed = True
        self._log.readers.remove(self.poke)

    def _fetch(self) -> None:
        self._fetching = False
        if self._closed:
            return
        if not self._process.link_up or self._world.now < self._process.broker.held.get(self._topic, 0.0):
            self._fetching = True
            self._world.after(0.1, self._fetch)
            return
        entries, self.position = self._log.read(self.position, self._world.random.randint(1, 20))
        self._fetched.extend(Record.of(self._topic, one.consumed) for one in entries)  # type: ignore[arg-type]
        self._arrivals.fetched(self._at, [one.offset for one in entries])
        if self.goes_back and len(entries) > 1:
            self.goes_back = False
            self._fetched.popleft()
            self.seek_to_committed()
        if entries:
            self._process.loop.call_soon(self._hand_out)
        if self.position < self._log.stable_end:
            self.poke()

    def _hand_out(self) -> None:
        if self._process.generation == self._generation:
            while self._fetched:
                try:
                    worker, record = self._process.worker, self._fetched.popleft()
                    if not self._arrivals.passes(self._at, record.offset, self._world.now):
                        continue
                    worker.partitions.accept(record, worker.agents[record.topic])
                except Exception as error:  # noqa: BLE001 - as app/faust/group.py
                    self._process.end_with(error)
                    return
        elif not self._closed:
            # Nothing flows before the assignment has been dealt with; what was fetched waits.
            self._process.loop.call_later(0.01, self._hand_out)


class Feeds:
    """A process's feeds, as the `Source` of its delivery."""

    def __init__(self, session_s: float) -> None:
        self.arrivals = Arrivals(2 * session_s)
        self.feeds: dict[tuple[str, int], Feed] = {}

    def pause(self, topic: str, partition: int) -> None:
        self.feeds[topic, partition].paused = True

    def resume(self, topic: str, partition: int) -> None:
        feed = self.feeds[topic, partition]
        feed.paused = False
        feed.poke()

    def open(self, process: Process, generation: int, numbers: frozenset[int]) -> None:
        former = self.feeds
        for feed in former.values():
            feed.close()
        self.feeds = {
            (topic, number): Feed(
                process, self.arrivals, generation, topic, TopicPartition(process.settings.topic(topic), number)
            )
            for number in numbers
            for topic in SOURCES
        }
        chance = random.Random(f"{process.name} {generation}")
        for place in former:
            if place in self.feeds and chance.random() < 0.5:
                self.feeds[place].hand_out_late(former[place])
        for feed in self.feeds.values():
            feed.goes_back = chance.random() < 0.3
