"""That the simulation can fail: each promise of delivery, broken on purpose, is found within a few seeds.

A mutant counts as found only where the verdict sees a broken promise: in the topics and tables, or by a worker that
delivery itself ends. One that merely makes a process crash is not found: it could crash for a reason that has nothing
to do with the promise.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec.structs import replace

from agents import controls, requests, tool_results
from agents.controls import Controls
from agents.requests import Requests
from agents.turns import Turns
from app.answering import kept, pipeline
from app.answering import run as run_module
from app.answering.job import job_of
from app.answering.run import Run
from app.audit.records import audit_of_request
from app.delivery import dead_letters
from app.delivery.accepted import Accepted
from app.delivery.clock import BrokerClock
from app.delivery.commits import commit
from app.delivery.commits.audit_chain import extend
from app.delivery.commits.commit import CommitQueue, GroupCommitter
from app.delivery.commits.handover import Handover, Offsets
from app.delivery.inflight import Forgets, InFlight
from app.delivery.open_records import OpenRecords
from app.delivery.ownership import Ownership
from app.delivery.partition import Partition
from app.delivery.partitions import Partitions
from app.delivery.record import REQUESTS, Record
from app.delivery.resume.answer_log import AnswerLog
from app.delivery.resume.quarantine import Beginning, Isolation
from app.delivery.resume.recovery import RecoveredAnswers, RequestKey
from app.delivery.resume.tokens import TokenLog
from app.delivery.user_locks import UserLocks
from app.faust.arrivals import Arrivals, Place
from app.features.cache import recordings
from app.features.cache.recordings import Recording, ResponseCache
from app.features.cache.stage import Cached
from app.features.guard import masking
from app.features.guard.masking import Masked
from app.features.guard.moderation import Moderated
from app.features.open_calls import OpenCalls
from app.features.recall.stage import Recalling
from app.features.routing import stage as routing
from app.features.routing.stage import Routed
from app.wire.dead_letters import Cause, DeadLetter, dead_letter_headers
from app.wire.event import FALLBACK, PLAN, Notice, Plan, TokenEvent
from app.wire.turn import Turn
from models.generation import Delta, Job, StreamEvent
from tables.records import Change, Conversation, Erased, Table, decode_row, encode, key
from tables.tool_calls import ToolRounds, row
from tables.usage import Windows
from tests.simulation.big_erasure import big_erasure
from tests.simulation.broker import Broker, Writer
from tests.simulation.faults import (
    FAULTS,
    crowded_storm,
    expiring_storm,
    flooded_storm,
    kill,
    masked_erasing_storm,
    masking_storm,
    mixed_storm,
    moderation_storm,
    recalling_storm,
    repeated_erasures,
    replayed_turns,
    routed_storm,
    storm,
    suspended_fence,
    suspended_sweep,
    tool_storm,
    trouble,
    wide_storm,
)
from tests.simulation.scenario import Simulation

SEEDS = 1500


async def _nothing(*_: Any, **__: Any) -> None:
    return None


def _fences_none(broker: Broker, name: str, _epoch: int) -> Writer:
    return broker.writers[name]


async def _end_without_waiting(answer: AnswerLog, event: TokenEvent) -> TokenEvent:
    await answer._send(event)
    return event


def _id_of_the_owner(answer: AnswerLog, index: int) -> str:
    return f"call_{answer._tokens.epoch}_{index}"


def _without_head(*arguments: Any) -> Any:
    _head, links = extend(*arguments)
    return (), links


def _audits_no_errors(accepted: Accepted, answer: AnswerLog, end: TokenEvent, *rest: Any) -> Any:
    return () if end.error is not None else audit_of_request(accepted, answer, end, *rest)


def _decides_nothing(calls: OpenCalls, key: tuple[str, str], rounds: ToolRounds) -> Change:
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


_turn = kept._turn


def _without_calls(*arguments: Any) -> Turn:
    return replace(_turn(*arguments), tool_calls=None)


def _without_source(*arguments: Any) -> Turn:
    return replace(_turn(*arguments), cached=None)


async def _recovers_nothing(ownership: Ownership, *_: Any) -> None:
    ownership._resume_until = 0


async def _writes_no_fence(ownership: Ownership, mine: set[int]) -> None:
    ownership.token_log.open(max(0, ownership._former.tokens_offset))
    mine.add(ownership.token_log.epoch)


def _head_without_open(offsets: Offsets, _finishing: Any = ()) -> int:
    return offsets.next


def _known_while_it_runs(ownership: Ownership, key: tuple[str, str], _at: int) -> bool:
    return key in ownership.inflight_requests


def _without_progress(windows: Windows) -> tuple[Change, ...]:
    rows = dict(windows._changed)
    windows._changed.clear()
    return tuple(Change(Table.USAGE, encode(key), tally and encode(tally)) for key, tally in rows.items())


def _drop_records_alone(queue: CommitQueue) -> None:
    for entry in queue.waiting:
        if entry.commit.record is not None:
            entry.committed.cancel()
    queue.waiting = [entry for entry in queue.waiting if not entry.committed.cancelled()]


async def _clock_as_watermark(_owner: Partitions, partition: Partition) -> int:
    return partition.ownership.clock.now()


_commit = GroupCommitter._commit


async def _store_first(committer: GroupCommitter, group: Any) -> None:
    changes = [change for entry in group for change in entry.commit.changes]
    committer._store.apply(changes, {}, now_ms=0)
    await _commit(committer, group)


def _own_clock(_clock: BrokerClock) -> int:
    return time.time_ns() // 1_000_000


def _lower_bound(clock: BrokerClock) -> float:
    return clock.now()


def _any_timestamp(_clock: BrokerClock, timestamp: int) -> int:
    return timestamp


_handover = Ownership._handover


def _without_ahead(ownership: Ownership, finished: Any, epoch: int) -> Handover:
    whole = _handover(ownership, finished, epoch)
    return Handover(whole.head, whole.epoch, whole.tokens_offset, whole.floor, (), whole.lost_epoch)


def _forget_no_history(inflight: Any, at: int) -> None:
    if inflight.accepted.at <= at:
        inflight.forgets = Forgets.ALL
        inflight.stop.now(controls.FinishReason.CANCELLED)


def _forget_no_inflight(_claim: Any, _at: int) -> None:
    return None


def _whatever_is_there(run: Run) -> Any:
    raw = run.partition.ownership.store.get(Table.CONVERSATIONS, key(*run.accepted.conversation))
    conversation = None if raw is None else decode_row(raw, Conversation)
    return conversation, run_module.memory_of(run.accepted, conversation, run.rules)


_DELETE_ROWS = controls._delete_rows


async def _deletes_once(partition: Partition, user_id: str, mark: Erased) -> None:
    """As if a mark that is there meant that the rows are gone."""
    if partition.ownership.restored or mark.applied > partition.ownership.clock.now() - 100:
        await _DELETE_ROWS(partition, user_id, mark)


def _whole_dead_letter(cause: Cause, key: Any, value: Any, headers: Any, **_: Any) -> DeadLetter:
    return DeadLetter(key, value, dead_letter_headers(cause, headers))


async def _enter_at_once(isolation: Isolation, _attempt: int) -> Beginning:
    isolation._together += 1
    return Beginning(isolation, is_suspect=False)


@dataclass(frozen=True, slots=True)
class Mutant:
    """`hint` is a seed that found it once: tried first, and all others after it. `more` is broken with it, where one
    mechanism stands in for the other.
    """

    owner: Any
    name: str
    broken: Any
    make: Callable[[int], Simulation] = storm
    hint: int = 0
    more: tuple[tuple[Any, str, Any], ...] = ()


_PASSES = Arrivals.passes


def _passes_all_that_is_assigned(arrivals: Arrivals, at: Place, offset: int, now: float) -> bool:
    return arrivals._is_assigned and (_PASSES(arrivals, at, offset, now) or at in arrivals._expected)


def _expects_what_it_did(arrivals: Arrivals, at: Place) -> None:
    arrivals._expected.setdefault(at, deque())


_WRITE = AnswerLog.write
_DECIDE = AnswerLog.decide
_INHERIT = AnswerLog.inherit
_NOTE = RecoveredAnswers.note
_REPEATED = Cached._repeated
_READ = Recalling.read
_FIND = Masked.decide
_JUDGE = Moderated.decide


def _is_open(*_: Any) -> bool:
    """As if no former owner had decided."""
    return False


async def _decides_silently(answer: AnswerLog, plan: Plan) -> None:
    answer.plan = plan


async def _gives_up(*_: Any) -> bool:
    return False


def _from_the_beginning(*arguments: Any) -> Job:
    return job_of(*arguments[:4])


async def _writes_no_fallback(answer: AnswerLog, plan: Plan) -> None:
    if plan.notice == FALLBACK:
        answer.plan = plan
    else:
        await _DECIDE(answer, plan)


def _notes_attempts_only(recovered: RecoveredAnswers, key: RequestKey, notice: Notice, index: int, at: int) -> None:
    if notice.code != PLAN:
        _NOTE(recovered, key, notice, index, at)


def _without(field: str) -> Callable[..., None]:
    def note(recovered: RecoveredAnswers, key: RequestKey, notice: Notice, index: int, at: int) -> None:
        if notice.code == PLAN:
            notice = replace(notice, details={**(notice.details or {}), field: None})
        _NOTE(recovered, key, notice, index, at)

    return note


def _inherits_nothing(answer: AnswerLog, _tokens: Sequence[int]) -> None:
    _INHERIT(answer, ())


async def _is_free(_stage: Cached, job: Job, then: Any) -> AsyncGenerator[StreamEvent, None]:
    async with aclosing(then(job)) as events:
        async for event in events:
            yield event


def _repeats_less(stage: Cached, job: Job, recording: Recording, then: Any) -> AsyncGenerator[StreamEvent, None]:
    recording.events[:] = recording.events[1:]
    return _REPEATED(stage, job, recording, then)


def _recalls_anew(stage: Recalling, plan: Plan, memory: Any) -> Plan:
    """As if another search had found nothing."""
    if stage.run.accepted.former.plan.recalled is None:
        return _READ(stage, plan, memory)
    return replace(plan, recalled=())


async def _finds_anew(stage: Masked, plan: Plan, then: Any) -> Plan:
    return await _FIND(stage, replace(plan, private=None), then)


async def _judges_anew(stage: Moderated, plan: Plan, then: Any) -> Plan:
    return await _JUDGE(stage, replace(plan, flagged=None), then)


async def _judges_behind_the_reader(stage: Moderated, job: Job, then: Any) -> AsyncGenerator[StreamEvent, None]:
    """Readers have the tokens while they are judged."""
    texts: list[str] = []
    async with aclosing(then(job)) as events:
        async for event in events:
            yield event
            if isinstance(event, Delta):
                texts.append(event.text)
                asker = masking.asker_of(stage.run.accepted, masking.Patience.BEGUN)
                answer, actions = stage.run.answer, stage._guard.rules.answer
                await stage.run.replan(await stage._judged(answer.plan, ["".join(texts)], actions, asker))


async def _counts_events(answer: AnswerLog, delta: Delta) -> None:
    await _WRITE(answer, delta)
    answer.index = delta.index + 1


async def _writes_the_last_token(answer: AnswerLog, delta: Delta) -> None:
    await _WRITE(answer, Delta(delta.index, delta.tokens[-1:], delta.text))


def _ends_at_once(agent: Requests, partition: Partition, inflight: InFlight, _reason: Any) -> None:
    accepted = inflight.accepted
    if accepted.former.answer is None and partition.lanes.withdraw(accepted.conversation, inflight):
        partition.spawn(agent._containment.answer(partition, inflight))


def _decides_all(plan: Plan, route: Plan) -> Plan:
    return replace(route, at=plan.at)


_ALL = OpenRecords.all


def _without_parked(records: OpenRecords) -> list[tuple[Record, bool]]:
    return [(record, parked) for record, parked in _ALL(records) if not parked]


def _by_share_alone(records: OpenRecords, record: Record) -> bool:
    return record.topic == REQUESTS and record.key is not None and not records._has_room(record.key)


def kills_and_trouble(seed: int) -> Simulation:
    return storm(seed, faults=(trouble, kill))


def erasing(seed: int) -> Simulation:
    return storm(seed, erases=0.4)


def wide(seed: int) -> Simulation:
    return wide_storm(seed)


def wide_before(seed: int) -> Simulation:
    return wide_storm(seed, faults=FAULTS)


MUTANTS: dict[str, Mutant] = {
    "the broker fences no producer": Mutant(Broker, "_writer", _fences_none, hint=16),
    "an end does not wait for the deliveries before it": Mutant(
        AnswerLog, "_end", _end_without_waiting, kills_and_trouble, hint=42
    ),
    "a next owner does not recover the tokens of open answers": Mutant(
        Ownership, "read_log", _recovers_nothing, hint=6
    ),
    "no fence is written": Mutant(Ownership, "write_fence", _writes_no_fence, hint=4),
    "a fence overtakes what is on its way": Mutant(TokenLog, "hold", _nothing, hint=1),
    "offsets are committed past open requests": Mutant(Offsets, "head", _head_without_open, hint=4),
    "ended requests are forgotten": Mutant(Ownership, "known", _known_while_it_runs, hint=6),
    "requests beyond a user's share are forgotten with their ownership": Mutant(
        OpenRecords, "all", _without_parked, flooded_storm, hint=1
    ),
    "a request overtakes those of its user that are parked": Mutant(
        OpenRecords, "exceeds", _by_share_alone, flooded_storm
    ),
    "a request that is stopped in its queue ends at once": Mutant(Requests, "_end_soon", _ends_at_once, hint=10),
    "a next owner that does not serve the model of a plan decides all anew": Mutant(
        routing, "_routed", _decides_all, mixed_storm, hint=47
    ),
    "an answer stays free whose repeat broke off": Mutant(Cached, "_paid", _is_free, routed_storm, hint=101),
    "a request that a former owner has begun is parked": Mutant(
        Ownership, "has_begun", lambda *_: False, flooded_storm, hint=78
    ),
    "a record behind a gap passes": Mutant(Arrivals, "passes", _passes_all_that_is_assigned, flooded_storm, hint=3),
    "the base is not set anew at a seek": Mutant(Arrivals, "seek", _expects_what_it_did, flooded_storm, hint=3),
    "records in memory are not taken again": Mutant(Partition, "_reopen_records", lambda _partition: None, hint=1),
    "usage is counted again from the beginning": Mutant(Windows, "drain", _without_progress),
    "rows are written before they are committed": Mutant(
        GroupCommitter, "_commit", _store_first, kills_and_trouble, hint=279
    ),
    "offsets finished ahead are not committed": Mutant(Ownership, "_handover", _without_ahead, wide_before, hint=21),
    "a sweep outlives its ownership": Mutant(CommitQueue, "drop", _drop_records_alone, suspended_sweep, hint=15),
    "the watermark is the clock": Mutant(Partitions, "watermark", _clock_as_watermark, expiring_storm, hint=566),
    "a worker believes its own clock": Mutant(BrokerClock, "now", _own_clock, wide, hint=1),
    "a worker believes a producer's clock": Mutant(BrokerClock, "time_of", _any_timestamp, wide, hint=4),
    "a worker doubts timestamps by a clock that lags": Mutant(
        BrokerClock, "_latest", _lower_bound, suspended_fence, hint=34
    ),
    "an erasure leaves running answers their history": Mutant(
        controls, "_forget_inflight", _forget_no_history, masked_erasing_storm, hint=26
    ),
    "an erasure leaves running answers alone": Mutant(
        controls, "_forget_inflight", _forget_no_inflight, erasing, hint=2
    ),
    "who reads a conversation does not ask the mark": Mutant(
        Run, "remembered", _whatever_is_there, big_erasure, hint=1
    ),
    "the next owner does not go on with an erasure": Mutant(
        controls, "_delete_rows", _deletes_once, big_erasure, hint=22
    ),
    "a slow erasure replaces the mark of a newer one": Mutant(
        UserLocks, "of", lambda *_: asyncio.Lock(), repeated_erasures, hint=2
    ),
    "sinks do not learn of erasures": Mutant(Controls, "_for_sinks", lambda *_: (), erasing),
    "erased turns are indexed": Mutant(Turns, "_is_forgotten", lambda *_: False, replayed_turns, hint=2),
    "a record that Kafka refuses is trouble of the broker": Mutant(
        commit, "RECORD_ERRORS", (), wide, hint=2, more=((dead_letters, "dead_letter", _whole_dead_letter),)
    ),
    "attempts are not counted": Mutant(requests, "lost_attempts", lambda *_: 0, wide, hint=5),
    "an event counts as one token": Mutant(AnswerLog, "write", _counts_events, crowded_storm),
    "an event holds its last token alone": Mutant(AnswerLog, "write", _writes_the_last_token, crowded_storm),
    "a resumed answer's calls have other ids": Mutant(AnswerLog, "call_id", _id_of_the_owner),
    "a turn has no calls": Mutant(kept, "_turn", _without_calls),
    "a round's calls are written without the round": Mutant(OpenCalls, "decide", _decides_nothing, tool_storm),
    "the last result counts": Mutant(tool_results, "_rounds_without", _all_of_them, tool_storm, hint=1),
    "a call times out that has a result in the log": Mutant(OpenCalls, "read_to_end", _nothing, tool_storm),
    "a round of calls is no progress of its own": Mutant(
        AnswerLog, "inherit", _reads_on_from_the_first_round, tool_storm
    ),
    "a next owner decides anew": Mutant(Routed, "is_decided", _is_open, routed_storm, hint=2),
    "decisions are not written": Mutant(AnswerLog, "decide", _decides_silently, routed_storm),
    "a plan that was written is forgotten": Mutant(
        RecoveredAnswers, "note", _notes_attempts_only, routed_storm, hint=2
    ),
    "a model that fails is not tried again": Mutant(Routed, "_goes_on", _gives_up, routed_storm),
    "a model that is tried again begins anew": Mutant(pipeline, "job_of", _from_the_beginning, routed_storm, hint=3),
    "a fallback is not written": Mutant(AnswerLog, "decide", _writes_no_fallback, routed_storm, hint=3),
    "a model that takes over does not read the text so far": Mutant(
        AnswerLog, "inherit", _inherits_nothing, routed_storm, hint=3
    ),
    "a next owner forgets where another model took over": Mutant(
        RecoveredAnswers, "note", _without("from_index"), routed_storm, hint=6
    ),
    "a cached answer is another user's": Mutant(recordings, "_scope", lambda *_: "all", routed_storm, hint=3),
    "a cached answer is not written down": Mutant(kept, "_turn", _without_source, routed_storm, hint=7),
    "a cached answer lacks its beginning": Mutant(Cached, "_repeated", _repeats_less, routed_storm, hint=7),
    "the cache keeps the answers of an erased user": Mutant(
        ResponseCache, "forget", lambda *_: None, routed_storm, hint=100
    ),
    "a next owner recalls anew": Mutant(Recalling, "read", _recalls_anew, recalling_storm, hint=12),
    "a next owner looks for private values anew": Mutant(
        Masked, "is_decided", _is_open, masking_storm, hint=1, more=((Masked, "decide", _finds_anew),)
    ),
    "private values of earlier turns are not hidden": Mutant(
        masking, "past_values", lambda *_: (), masking_storm, hint=1
    ),
    "a next owner judges a prompt anew": Mutant(
        Moderated, "is_decided", _is_open, moderation_storm, hint=3, more=((Moderated, "decide", _judges_anew),)
    ),
    "a next owner forgets that the guard has ended an answer": Mutant(
        RecoveredAnswers, "note", _without("filtered"), moderation_storm, hint=5
    ),
    "tokens leave before they are judged": Mutant(Moderated, "_gated", _judges_behind_the_reader, moderation_storm),
    "erased turns are recalled": Mutant(Recalling, "_erased_at", lambda *_: -1, recalling_storm, hint=103),
    "the head of the audit's chain is not committed": Mutant(commit, "extend", _without_head),
    "errors are not audited": Mutant(kept, "audit_of_request", _audits_no_errors, hint=6),
    "suspects are not isolated": Mutant(Isolation, "enter", _enter_at_once, wide, hint=75),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_promise_is_found(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    find_broken_promise(mutant, MUTANTS[mutant], monkeypatch)


def find_broken_promise(mutant: str, case: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run its storms until one notices; fails the test if none does."""
    for owner, name, broken in ((case.owner, case.name, case.broken), *case.more):
        monkeypatch.setattr(owner, name, broken)
    for seed in (case.hint, *range(SEEDS)):
        try:
            outcome = case.make(seed).run()
        except Exception:  # noqa: BLE001 - a run that cannot be judged proves nothing
            continue
        if outcome.broken_promise:
            return
    pytest.fail(f"{SEEDS} seeds did not notice that {mutant}")
