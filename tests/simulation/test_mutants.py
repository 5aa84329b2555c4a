"""That the simulation can fail: each promise of delivery, broken on purpose, is found within a few seeds."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from agents import controls, requests, tool_results
from agents.controls import Controls
from agents.requests import Requests
from agents.turns import Turns
from app.answering import kept
from app.answering import run as run_module
from app.answering.run import Run
from app.audit.records import audit_of_request
from app.delivery import dead_letters
from app.delivery.accepted import Accepted
from app.delivery.commits import commit
from app.delivery.commits.audit_chain import extend
from app.delivery.commits.commit import CommitQueue, GroupCommitter
from app.delivery.commits.handover import Handover, Offsets
from app.delivery.inflight import InFlight
from app.delivery.open_records import OpenRecords, _payers_of
from app.delivery.ownership import Ownership
from app.delivery.partition import Partition
from app.delivery.record import REQUESTS, Record
from app.delivery.resume.answer_log import AnswerLog
from app.delivery.resume.quarantine import Isolation
from app.delivery.resume.tokens import TokenLog
from app.faust.arrivals import Arrivals, Place
from app.features.open_calls import OpenCalls
from app.kafka.broker_clock import BrokerClock
from app.process.user_locks import UserLocks
from app.wire.dead_letters import Cause, DeadLetter, dead_letter_headers
from app.wire.event import TokenEvent
from app.wire.request import Request
from app.wire.turn import Turn
from models.interface.generation import Delta
from tables.erasures import Marks, PartitionMarks, Scope
from tables.records import Conversation, Erased, RowChange, Table, decode_row, encode, key
from tables.tool_calls import ToolRounds, row
from tables.usage import Windows
from tests.simulation.big_erasure import big_erasure
from tests.simulation.broker import Broker, Writer
from tests.simulation.deletions import deleting_storm, late_erasures, replayed_deletions
from tests.simulation.faults import FAULTS, kill, trouble
from tests.simulation.leaves import false_leaves
from tests.simulation.mutant import Mutant, enter_at_once, find_broken_promise
from tests.simulation.scenario import Simulation
from tests.simulation.storms import (
    crammed_storm,
    crowded_storm,
    flooded_storm,
    repeated_erasures,
    replayed_turns,
    storm,
    suspended_sweep,
    talking_storm,
    tool_storm,
    wide_storm,
)


async def _nothing(*_: Any, **__: Any) -> None:
    return None


_TURN = kept._turn


def _fences_none(broker: Broker, name: str, _epoch: int) -> Writer:
    return broker.writers[name]


def _id_of_the_owner(answer: AnswerLog, index: int) -> str:
    return f"call_{answer._tokens.epoch}_{index}"


def _without_head(*arguments: Any) -> Any:
    _head, links = extend(*arguments)
    return (), links


def _audits_no_errors(accepted: Accepted, answer: AnswerLog, end: TokenEvent, *rest: Any) -> Any:
    return () if end.error is not None else audit_of_request(accepted, answer, end, *rest)


def _decides_nothing(calls: OpenCalls, key: tuple[str, str], rounds: ToolRounds) -> RowChange:
    calls._decided[key] = rounds
    return row("no user", "nothing", None)


def _all_of_them(_partition: Partition, calls: OpenCalls, result: Any) -> ToolRounds | None:
    rounds = calls.decided((result.user_id, result.request_id))
    if rounds is None or all(call.id != result.tool_call_id for call in rounds.calls):
        return None
    others = tuple(one for one in rounds.rounds[-1].outcomes if one.call_id != result.tool_call_id)
    return replace(rounds, rounds=(*rounds.rounds[:-1], replace(rounds.rounds[-1], outcomes=others)))


def _reads_on_from_the_first_round(answer: AnswerLog, tokens: Sequence[int]) -> None:
    answer._begin, answer._inherited = answer.plan.from_index or 0, tuple(tokens)


def _without_calls(*arguments: Any) -> Turn:
    return replace(_TURN(*arguments), tool_calls=None)


async def _recovers_nothing(ownership: Ownership, *_: Any) -> None:
    ownership._resume_until = 0


async def _writes_no_fence(ownership: Ownership, mine: set[int]) -> None:
    ownership.token_log.open(max(0, ownership._former.tokens_offset))
    mine.add(ownership.token_log.epoch)


def _head_without_open(offsets: Offsets, _finishing: Any = ()) -> int:
    return offsets.next


def _known_while_it_runs(ownership: Ownership, key: tuple[str, str], _at: int) -> bool:
    return key in ownership.inflight_requests


def _without_progress(windows: Windows) -> tuple[RowChange, ...]:
    rows = dict(windows._changed)
    windows._changed.clear()
    return tuple(RowChange(Table.USAGE, encode(key), tally and encode(tally)) for key, tally in rows.items())


def _drop_records_alone(queue: CommitQueue) -> None:
    for entry in queue.waiting:
        if entry.commit.record is not None:
            entry.committed.cancel()
    queue.waiting = [entry for entry in queue.waiting if not entry.committed.cancelled()]


_commit = GroupCommitter._commit


async def _store_first(committer: GroupCommitter, group: Any) -> None:
    changes = [change for entry in group for change in entry.commit.changes]
    committer.store.apply(changes, {}, now_ms=0)
    await _commit(committer, group)


def _own_clock(_clock: BrokerClock) -> int:
    return time.time_ns() // 1_000_000


def _any_timestamp(_clock: BrokerClock, timestamp: int) -> int:
    return timestamp


_handover = Ownership._handover


def _without_ahead(ownership: Ownership, finished: Any, epoch: int) -> Handover:
    whole = _handover(ownership, finished, epoch)
    return Handover(whole.head, whole.epoch, whole.tokens_offset, whole.floor, (), whole.lost_epoch)


def _whatever_is_there(run: Run) -> Any:
    raw = run.partition.ownership.store.get(Table.CONVERSATIONS, key(*run.accepted.conversation))
    conversation = None if raw is None else decode_row(raw, Conversation)
    return conversation, run_module.memory_of(run.accepted, conversation, run.rules)


_DELETE_ROWS = controls._delete_rows


async def _deletes_once(partition: Partition, scope: Scope, mark: Erased) -> None:
    """As if a mark that is there meant that the rows are gone."""
    if partition.ownership.restored or mark.applied > partition.ownership.clock.now() - 100:
        await _DELETE_ROWS(partition, scope, mark)


def _remembers_nothing_again(run: Run) -> None:
    if run.marks.at:
        run.conversation, run.memory = None, ()


def _of_the_user_alone(marks: PartitionMarks, user_id: str, _conversation: str) -> Marks:
    mark = marks._newest(Scope(user_id))
    return Marks(() if mark is None else (mark,))


def _whatever_the_conversation(scope: Scope, user_id: str, _conversation: str) -> bool:
    return user_id == scope.user_id


def _whole_dead_letter(cause: Cause, key: Any, value: Any, headers: Any, **_: Any) -> DeadLetter:
    return DeadLetter(key, value, dead_letter_headers(cause, headers))


_PASSES = Arrivals.passes


def _passes_all_that_is_assigned(arrivals: Arrivals, at: Place, offset: int, now: float) -> bool:
    return arrivals._is_assigned and (_PASSES(arrivals, at, offset, now) or at in arrivals._expected)


def _expects_what_it_did(arrivals: Arrivals, at: Place) -> None:
    arrivals._expected.setdefault(at, deque())


_WRITE = AnswerLog.write


async def _counts_events(answer: AnswerLog, delta: Delta) -> None:
    await _WRITE(answer, delta)
    answer.index = delta.index + 1


async def _writes_the_last_token(answer: AnswerLog, delta: Delta) -> None:
    await _WRITE(answer, Delta(delta.index, delta.tokens[-1:], delta.text))


def _ends_at_once(agent: Requests, partition: Partition, inflight: InFlight, _reason: Any) -> None:
    accepted = inflight.accepted
    if accepted.former.answer is None and partition.lanes.withdraw(accepted.conversation, inflight):
        partition.spawn(agent.containment.answer(partition, inflight))


_INHERIT = OpenRecords.inherit_parked


def _inherits_unknowing(records: OpenRecords, *former: Any) -> int:
    _INHERIT(records, *former)
    return 0


def _by_share_alone(records: OpenRecords, record: Record) -> bool:
    return record.topic == REQUESTS and not records._has_room(_payers_of(record))


def kills_and_trouble(seed: int) -> Simulation:
    return storm(seed, faults=(trouble, kill))


def erasing(seed: int) -> Simulation:
    return storm(seed, erases=0.4)


def wide(seed: int) -> Simulation:
    return wide_storm(seed)


def wide_before(seed: int) -> Simulation:
    return wide_storm(seed, faults=FAULTS)


MUTANTS: dict[str, Mutant] = {
    "the broker fences no producer": Mutant(Broker, "_writer", _fences_none, hint=10),
    "a next owner does not recover the tokens of open answers": Mutant(Ownership, "read_log", _recovers_nothing),
    "a worker that lives and is left for is not fenced": Mutant(Broker, "_writer", _fences_none, false_leaves, hint=8),
    "its successor writes no fence": Mutant(Ownership, "write_fence", _writes_no_fence, false_leaves, 1),
    "no fence is written": Mutant(Ownership, "write_fence", _writes_no_fence, hint=4),
    "a fence overtakes what is on its way": Mutant(TokenLog, "hold", _nothing, hint=13),
    "offsets are committed past open requests": Mutant(Offsets, "head", _head_without_open, hint=4),
    "ended requests are forgotten": Mutant(Ownership, "known", _known_while_it_runs, hint=6),
    "requests beyond a user's share are forgotten with their ownership": Mutant(
        OpenRecords, "inherit_parked", lambda *_: 0, flooded_storm, hint=1
    ),
    "what another owner has begun of parked requests is forgotten": Mutant(
        OpenRecords, "inherit_parked", _inherits_unknowing, crammed_storm, hint=8
    ),
    "offsets are committed past parked requests": Mutant(OpenRecords, "first_parked", lambda *_: None, crammed_storm),
    "what comes again while it is parked is opened again": Mutant(
        OpenRecords, "is_parked", lambda *_: False, flooded_storm, hint=52
    ),
    "a request overtakes those of its user that are parked": Mutant(
        OpenRecords, "exceeds", _by_share_alone, flooded_storm
    ),
    "a request that is stopped in its queue ends at once": Mutant(Requests, "_end_soon", _ends_at_once, hint=10),
    "a request that a former owner has begun is parked": Mutant(
        Ownership, "has_begun", lambda *_: False, flooded_storm, hint=170
    ),
    "a record behind a gap passes": Mutant(Arrivals, "passes", _passes_all_that_is_assigned, flooded_storm, hint=3),
    "the base is not set anew at a seek": Mutant(Arrivals, "seek", _expects_what_it_did, flooded_storm, hint=4),
    "records in memory are not taken again": Mutant(Partition, "_reopen_records", lambda _partition: None, hint=1),
    "usage is counted again from the beginning": Mutant(Windows, "drain", _without_progress),
    "rows are written before they are committed": Mutant(
        GroupCommitter, "_commit", _store_first, kills_and_trouble, hint=279
    ),
    "offsets finished ahead are not committed": Mutant(Ownership, "_handover", _without_ahead, wide_before, hint=21),
    "a sweep outlives its ownership": Mutant(CommitQueue, "drop", _drop_records_alone, suspended_sweep, hint=769),
    "a worker believes its own clock": Mutant(BrokerClock, "now", _own_clock, wide, hint=1),
    "a worker believes a producer's clock": Mutant(BrokerClock, "time_of", _any_timestamp, wide, hint=4),
    "an erasure leaves running answers their history": Mutant(
        Run, "forgets", property(lambda run: run.marks.cover(run.accepted.at)), late_erasures, hint=23
    ),
    "an erasure leaves running answers alone": Mutant(Run, "forgets", property(lambda _: False), erasing, hint=4),
    "an erasure leaves a request that goes on what it has read": Mutant(
        Run, "drop_erased", lambda _: None, late_erasures, hint=9
    ),
    "a conversation that was erased remembers nothing again": Mutant(
        Run, "drop_erased", _remembers_nothing_again, late_erasures, hint=53
    ),
    "who reads a conversation does not ask the mark": Mutant(
        Run, "remembered", _whatever_is_there, big_erasure, hint=1
    ),
    "the next owner does not go on with an erasure": Mutant(
        controls, "_delete_rows", _deletes_once, big_erasure, hint=19
    ),
    "a slow erasure replaces the mark of a newer one": Mutant(
        UserLocks, "of", lambda *_: asyncio.Lock(), repeated_erasures, hint=14
    ),
    "nobody asks the mark of a conversation": Mutant(PartitionMarks, "of", _of_the_user_alone, deleting_storm, hint=2),
    "the erasure of a conversation leaves running answers alone": Mutant(
        Run, "forgets", property(lambda _: False), deleting_storm, hint=1
    ),
    "the erasure of a conversation reaches the user's others": Mutant(
        Scope, "includes", _whatever_the_conversation, deleting_storm, hint=2
    ),
    "the turns of an erased conversation are indexed": Mutant(
        Turns, "_is_forgotten", lambda *_: False, replayed_deletions, hint=14
    ),
    "sinks do not learn of erasures": Mutant(Controls, "_for_sinks", lambda *_: (), erasing),
    "erased turns are indexed": Mutant(Turns, "_is_forgotten", lambda *_: False, replayed_turns, hint=45),
    "a record that Kafka refuses is trouble of the broker": Mutant(
        commit, "RECORD_ERRORS", (), wide, hint=2, more=((dead_letters, "dead_letter", _whole_dead_letter),)
    ),
    "attempts are not counted": Mutant(requests, "lost_attempts", lambda *_: 0, wide, hint=5),
    "an event counts as one token": Mutant(AnswerLog, "write", _counts_events, crowded_storm),
    "an event holds its last token alone": Mutant(AnswerLog, "write", _writes_the_last_token, crowded_storm),
    "a resumed answer's calls have other ids": Mutant(AnswerLog, "call_id", _id_of_the_owner),
    "messages do not follow their conversation": Mutant(
        Request, "sees_conversation", property(lambda request: request.messages is None), talking_storm
    ),
    "a turn has no calls": Mutant(kept, "_turn", _without_calls),
    "a round's calls are written without the round": Mutant(OpenCalls, "decide", _decides_nothing, tool_storm),
    "the last result counts": Mutant(tool_results, "_rounds_without", _all_of_them, tool_storm),
    "a call times out that has a result in the log": Mutant(OpenCalls, "read_to_end", _nothing, tool_storm, hint=4),
    "a round of calls is no progress of its own": Mutant(
        AnswerLog, "inherit", _reads_on_from_the_first_round, tool_storm
    ),
    "the head of the audit's chain is not committed": Mutant(commit, "extend", _without_head),
    "errors are not audited": Mutant(kept, "audit_of_request", _audits_no_errors, hint=6),
    "suspects are not isolated": Mutant(Isolation, "enter", enter_at_once, wide, hint=75),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_promise_is_found(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    find_broken_promise(mutant, MUTANTS[mutant], monkeypatch)
