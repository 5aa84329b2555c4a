"""The verdict on hostile records: one outcome each, and workers that go on.

What becomes of them counts here alone; the other verdicts read the topics without them (`Innocent`).
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from aiokafka import TopicPartition

from app.delivery.commits.handover import decode_handover
from app.delivery.resume.quarantine import Attempt
from app.wire.codec import decode
from app.wire.event import EventType, TokenEvent
from tests.simulation.hostile import VILLAIN

if TYPE_CHECKING:
    from tests.faults.records import Key
    from tests.simulation.broker import Entry
    from tests.simulation.scenario import Simulation


_APART_MS = (5_000, 15_000, 30_000)


class Innocent:
    """Which records and requests are no hostile ones."""

    def __init__(self, simulation: Simulation) -> None:
        self._hostile = simulation.hostile
        self._ids = {arrived.request_id for arrived in simulation.hostile.values()} - {None}

    def key(self, key: Key) -> bool:
        return key[1] not in self._ids and not key[0].startswith(VILLAIN)

    def entry(self, entry: Entry) -> bool:
        return (entry.topic, entry.partition, entry.offset) not in self._hostile

    def turns(self, entries: Iterable[Entry]) -> list[Entry]:
        return [entry for entry in entries if self.key(_key_of_turn(entry))]

    def others(self, turns: Iterable[Entry]) -> set[tuple[str, int, int]]:
        """Where the turns of hostile requests are; they may not be indexed."""
        return {(one.topic, one.partition, one.offset) for one in turns if not self.key(_key_of_turn(one))}

    def tokens(self, entries: Iterable[Entry]) -> list[Entry]:
        events = ((entry, decode(TokenEvent, entry.value, entry.headers)) for entry in entries)
        return [entry for entry, event in events if self.key((event.user_id or "", event.request_id or ""))]


def readable(tokens: Iterable[Entry]) -> tuple[list[Entry], list[str]]:
    """The events that readers can decode, and what is wrong with the others."""
    good, wrong = [], []
    for entry in tokens:
        try:
            decode(TokenEvent, entry.value, entry.headers)
            good.append(entry)
        except Exception as error:  # noqa: BLE001 - of any type: it is what readers get
            wrong.append(f"nobody can read tokens {entry.partition}@{entry.offset}: {error!r}")
    return good, wrong


def wrong_outcomes(
    simulation: Simulation, tokens: Iterable[Entry], turns: Iterable[Entry], letters: Counter[tuple[str, int, int]]
) -> list[str]:
    """Hostile records without an outcome, or with two, and workers that ended."""
    if not simulation.besieged:
        return []
    wrong = [f"{process.name} was ended by {error!r}" for process in simulation.processes for error in process.broken]
    ends = _ends(tokens)
    turned = Counter(_key_of_turn(entry)[1] for entry in turns)
    torn = {request_id for _, request_id in simulation.torn}
    for place, arrived in simulation.hostile.items():
        name, id_ = f"{place} ({arrived.record.name or arrived.record.value!r:.60})", arrived.request_id
        if place[0] != "tool-results" and not _is_done(simulation, place):
            wrong.append(f"{name} is never done")
        if arrived.record.cause and place[0] != "tool-results":
            wrong += [f"{name} has {letters[place]} dead letters"] if letters[place] != 1 else []
            wrong += [f"{name} {id_} ended as {ends[id_]}"] if id_ and ends[id_] - {"invalid_request"} else []
        if place[0] != "requests" or id_ in torn:
            continue
        if not letters[place] and not ends[id_]:
            wrong.append(f"{name} {id_} has no outcome")
        if len(ends[id_]) > 1 or turned[id_ or ""] > 1:
            wrong.append(f"{name} {id_} ended as {ends[id_]}, with {turned[id_ or '']} turns")
    return wrong


def met_by_kills(simulation: Simulation, tokens: Iterable[Entry]) -> set[Key]:
    """Requests whose four attempts at one token, each a while behind the one before, were all met by kills from
    outside. No log tells these from crashes of their own, so they are quarantined, too (README, guarantees).
    """
    killed = {ended for process in simulation.processes for ended in process.killed_in}
    newest: dict[tuple[Key, int, int], tuple[int, int]] = {}
    for entry in tokens:
        event = decode(TokenEvent, entry.value, entry.headers)
        attempt = event.notice and Attempt.of(event.notice, event.index or 0)
        if attempt and (entry.partition, event.epoch or 0) in killed:
            key = (event.user_id or "", event.request_id or "")
            newest[key, attempt.index, event.epoch or 0] = (attempt.number, entry.timestamp)
    met: defaultdict[tuple[Key, int], dict[int, int]] = defaultdict(dict)
    for (key, index, _epoch), (number, at) in newest.items():
        met[key, index][number] = at
    return {key for (key, _index), at in met.items() if {1, 2, 3, 4} <= at.keys() and _are_apart(at)}


def _are_apart(at: dict[int, int]) -> bool:
    return all(at[number + 1] - at[number] >= apart for number, apart in enumerate(_APART_MS, start=1))


def _is_done(simulation: Simulation, place: tuple[str, int, int]) -> bool:
    """Whether its offset is committed, or finished ahead of the committed one: a cancel waits minutes for a request
    that a wrong partitioner has put elsewhere.
    """
    committed = simulation.broker.committed.get(TopicPartition(*place[:2]))
    handover = None if committed is None else decode_handover(committed.offset, committed.metadata)
    return handover is not None and (place[2] < handover.head or place[2] in handover.ahead)


def _ends(tokens: Iterable[Entry]) -> defaultdict[str | None, set[str]]:
    """The ends of each request; readers ignore one that is repeated, or that comes from a former owner."""
    ends = defaultdict(set)
    epochs: dict[int, int] = {}
    for entry in tokens:
        event = decode(TokenEvent, entry.value, entry.headers)
        epoch = entry.offset if event.type is EventType.FENCE else event.epoch or 0
        epochs[entry.partition] = max(epoch, epochs.get(entry.partition, 0))
        if event.is_end and epoch == epochs[entry.partition]:
            ends[event.request_id].add(str(event.error.code if event.error else event.finish_reason))
    return ends


def _key_of_turn(entry: Entry) -> Key:
    turn = json.loads(entry.value or b"")
    return turn["user_id"], turn["request_id"]
